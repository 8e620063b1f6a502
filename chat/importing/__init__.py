"""Conversations from the exports of other products: read, told apart, turned into ours, stored once."""
