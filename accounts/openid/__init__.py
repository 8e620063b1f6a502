"""Signing in through an OpenID provider: docs/decisions/0026-authlib-for-openid-connect.md."""
