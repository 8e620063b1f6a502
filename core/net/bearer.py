"""Read the token of a request in one way for pages, the API, sockets and the metrics: a bearer token (RFC 6750)."""


def bearer_token(authorization: str) -> str | None:
    """Return the token in a header `Authorization`; None for another scheme, such as a proxy's Basic, or no token."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def api_token(path: str, authorization: str, api_key: str) -> str | None:
    """Return the token of a request, None without one.

    `api_key`: the header `X-Api-Key`, in which Anthropic's clients send their key. It counts below `/v1/` only: proxies
    may use it for keys of their own elsewhere.
    """
    return bearer_token(authorization) or (api_key.strip() if path.startswith("/v1/") else "") or None
