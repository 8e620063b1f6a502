"""Formats of a language in addition to Django's."""
