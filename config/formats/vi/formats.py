"""Vietnamese: Django knows the point that sets thousands apart, but not that there are three digits to a group."""

NUMBER_GROUPING = 3
