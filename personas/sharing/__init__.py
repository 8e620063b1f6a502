"""Shares of personas with users and groups, and changes of their owner."""
