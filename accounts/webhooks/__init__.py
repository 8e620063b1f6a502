"""Outgoing webhooks: whom to tell of what, the signed deliveries and their further tries."""
