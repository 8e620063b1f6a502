"""The list of conversations at the side of every page."""
