"""The audit as administrators and their programs read it."""
