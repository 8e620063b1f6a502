"""Every change to people and tokens."""

import hashlib
import secrets
from datetime import datetime

from django.contrib.auth.models import AbstractUser
from django.utils import timezone

from accounts.models import ApiToken, User
from llm.errors import NotFound, ProductError
from llm.services import require_staff

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


def revoke_token(*, user: AbstractUser, token: ApiToken) -> None:
    """Ends a token at once; its row stays as a record. One's own, or anybody's for an administrator."""
    if token.user_id != user.pk and not user.is_staff:
        raise NotFound("token")
    token.expires = timezone.now()
    token.save(update_fields=["expires"])


LAST_ADMIN = "This is the last administrator who can do everything. Make somebody else a superuser first."


def is_last_admin(person: User) -> bool:
    admins = User.objects.filter(is_active=True, is_superuser=True)
    return admins.filter(pk=person.pk).exists() and not admins.exclude(pk=person.pk).exists()


def save_user(*, user: AbstractUser, person: User) -> None:
    """Stores a row as an administrator's form left it. Raises `last_admin` rather than locking everybody out."""
    require_staff(user)
    if not (person.is_active and person.is_superuser) and is_last_admin(person):
        raise ProductError("last_admin", LAST_ADMIN, status=409)
    person.save()


def delete_user(*, user: AbstractUser, person: User) -> None:
    """Removes somebody with everything that is theirs."""
    require_staff(user)
    if is_last_admin(person):
        raise ProductError("last_admin", LAST_ADMIN, status=409)
    person.delete()
