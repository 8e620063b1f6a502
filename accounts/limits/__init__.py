"""What people and programs may use at most: set by administrators, in the admin and over the API."""
