"""The bearer token of a request (RFC 6750), read in one way by pages, the API, sockets and the metrics."""


def bearer_token(authorization: str) -> str | None:
    """Return the token in a header `Authorization`; None for another scheme, such as a proxy's Basic, or no token."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None
