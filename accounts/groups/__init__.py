"""Groups of people: changed by administrators, filled by managers and by the claims of providers."""
