"""Fixtures of the tests of access."""

from tests.config.household import household, people

__all__ = ["household", "people"]
