"""Summaries: which one holds on a branch, when the next is due, and how it is written (context.md, section 6)."""
