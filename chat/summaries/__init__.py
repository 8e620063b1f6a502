"""Summaries: when the next is due, and how it is written (docs/develop/context.md, “Summaries”)."""
