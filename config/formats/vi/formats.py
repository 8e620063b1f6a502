"""Vietnamese formats: Django has the separator of thousands, but not the three digits of a group."""

NUMBER_GROUPING = 3
