"""Limits of usage for people and programs, which administrators set in the admin and over the API."""
