"""What few installations need: see README.md."""
