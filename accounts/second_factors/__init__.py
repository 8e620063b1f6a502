"""Second factors: an authenticator app, passkeys, recovery codes."""
