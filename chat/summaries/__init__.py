"""Summaries: when the next is due, and how it is written (docs/context.md, “Summaries”)."""
