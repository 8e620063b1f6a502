"""Every change to people and tokens."""

import hashlib
import secrets
from datetime import datetime

from accounts.models import ApiToken, User
from llm.errors import ProductError

TOKEN_PREFIX = "gh_"  # noqa: S105 - a marker by which secret scanners recognise our tokens, not a secret


def token_digest(token: str) -> str:
    # A plain hash is enough: the token carries 256 random bits, so there is nothing to guess.
    return hashlib.sha256(token.encode()).hexdigest()


def create_token(
    *, user: User, name: str, scopes: list[str] | None = None, expires: datetime | None = None
) -> tuple[ApiToken, str]:
    """Returns the row and the token itself, which cannot be read again. No `scopes` means all but `admin`."""
    chosen = scopes if scopes is not None else [scope for scope in ApiToken.SCOPES if scope != "admin"]
    unknown = sorted(set(chosen) - set(ApiToken.SCOPES))
    if unknown:
        known = ", ".join(ApiToken.SCOPES)
        raise ProductError("unknown_scope", f"There is no scope “{unknown[0]}”. The scopes are {known}.")
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    row = ApiToken.objects.create(user=user, name=name, digest=token_digest(token), scopes=chosen, expires=expires)
    return row, token
