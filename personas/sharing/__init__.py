"""Personas that are shared with people and with groups, and handed over by their owners."""
