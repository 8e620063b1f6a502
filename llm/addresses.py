"""What a provider's address may look like."""

from urllib.parse import urlsplit


def is_http(url: str) -> bool:
    """Whether it has a host to call. A host without dots will do: that is how containers name each other."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets or a port that are none
        return False


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port: who gets a secret that is sent there."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port
