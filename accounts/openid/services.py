"""Changes to OpenID providers, and to the people who sign in through them.

A sign-in finds the person of the verified claims (`get_or_create_user`):

1. by the identity (issuer and subject), if the person has signed in before;
2. else by a verified e-mail address, if the provider may match accounts;
3. else a new account, if the provider may create accounts.

Then the provider's groups decide the person's groups, and whether the person is a superuser.
"""

import logging
import re
from collections.abc import Mapping
from itertools import count
from typing import Any

from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from accounts.access.delegation import is_last_admin
from accounts.access.login import OPENID_SESSION
from accounts.access.sessions import SessionStore, end
from accounts.groups.services import follow_claims
from accounts.models import OpenIDIdentity, OpenIDProvider, Session, User
from accounts.openid import connection
from core.audit.services import load_stored, record, record_saved
from core.errors import ProductError, invalid_setting
from core.net.url_safety import origin
from core.sentences import Sentence

MAX_NAME_LENGTH = 150  # characters of a user name
MAX_SUBJECT_LENGTH = 255  # characters, as the specification says
MAX_GROUPS = 1_000  # that are read for one person

logger = logging.getLogger(__name__)


# Providers


@transaction.atomic
def store_provider(*, user: AbstractUser | None, provider: OpenIDProvider, secret: str | None) -> None:
    """Store a provider; `secret` None keeps the stored one. Raises `superuser_only`, `invalid_setting`, `secret_moved`.

    Only superusers may do this, since a provider decides who a person is. `user` is None for a management command.
    """
    require_superuser(user)
    before = load_stored(provider)
    require_secret_for(before, provider.issuer, secret)
    if secret is not None:
        provider.client_secret = secret
    try:
        provider.full_clean()
    except ValidationError as error:
        raise invalid_setting(error.message_dict) from error
    provider.save()
    connection.forget(provider)
    record_saved(user=user, kind="openid_provider", row=provider, before=before, name=provider.name)


@transaction.atomic
def delete_provider(*, user: AbstractUser | None, provider: OpenIDProvider) -> None:
    """Delete a provider. Accounts and identities stay, and match again if the provider is added again."""
    require_superuser(user)
    record(user=user, action="openid_provider.deleted", row=provider, name=provider.name)
    provider.delete()


def require_secret_for(before: OpenIDProvider | None, issuer: str, secret: str | None) -> None:
    """Raise `secret_moved` (422) if a stored secret would be sent to a server for which it was not entered."""
    if secret is None and before and before.client_secret and origin(before.issuer) != origin(issuer):
        sentence = Sentence("The stored secret belongs to the previous issuer. Enter the secret for this issuer.")
        raise ProductError("secret_moved", sentence, status=422)


def require_superuser(user: AbstractUser | None) -> None:
    """Raise `superuser_only` (403) unless the user is a superuser. None is a management command, which may pass."""
    if user is not None and not (user.is_active and user.is_superuser):
        raise ProductError("superuser_only", "Only a superuser can change OpenID providers.", status=403)


# People


def get_or_create_user(*, provider: OpenIDProvider, claims: Mapping[str, Any]) -> User:
    """Return the person of a provider's verified claims, with a new account if the provider may create it.

    Raises `openid_refused`, `account_off` and `no_account` (403).
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_LENGTH or "\0" in subject:
        raise connection.sign_in_refused_error(
            Sentence("{provider} sent no valid user ID (`sub`).", provider=str(provider))
        )
    try:
        return _get_or_create_user(provider, claims)
    except IntegrityError:  # a concurrent sign-in took the user name, or the person signed in twice
        return _get_or_create_user(provider, claims)


@transaction.atomic
def _get_or_create_user(provider: OpenIDProvider, claims: Mapping[str, Any]) -> User:
    rows = OpenIDIdentity.objects.select_for_update()
    row = rows.filter(issuer=provider.issuer, subject=claims["sub"]).first()
    identity = row or _new_identity(provider, claims)
    person = identity.user
    if not person.is_active:
        sentence = Sentence("Your account in this workspace is deactivated. Ask an administrator.")
        raise ProductError("account_off", sentence, status=403)
    groups = _groups(provider, claims)
    if groups is not None:
        _sync_superuser(provider, identity, groups)
        follow_claims(person=person, claims=groups)
    return person


def _new_identity(provider: OpenIDProvider, claims: Mapping[str, Any]) -> OpenIDIdentity:
    existing = _match_by_email(provider, claims)
    person = existing or _create_person(provider, claims)
    action = "person.added" if existing is None else "person.linked"
    record(user=person, action=action, row=person, name=person.get_username(), changes={"provider": provider.name})
    return OpenIDIdentity.objects.create(user=person, issuer=provider.issuer, subject=claims["sub"])


def _match_by_email(provider: OpenIDProvider, claims: Mapping[str, Any]) -> User | None:
    """Return the only account with the verified address; None unless the provider may match accounts."""
    email = _email(claims)
    if not provider.matches_email or not email or claims.get("email_verified") is not True:
        return None
    people = list(User.objects.filter(email__iexact=email, email_confirmed=True)[:2])
    return people[0] if len(people) == 1 else None


def _create_person(provider: OpenIDProvider, claims: Mapping[str, Any]) -> User:
    if not provider.creates_accounts:
        sentence = Sentence(
            "You have no account here, and {provider} may not create one. Ask an administrator for an account.",
            provider=str(provider),
        )
        raise ProductError("no_account", sentence, status=403)
    person = User(
        username=_free_name(claims),
        email=_email(claims),
        email_confirmed=claims.get("email_verified") is True,
        first_name=_text(claims, "given_name") or _text(claims, "name"),
        last_name=_text(claims, "family_name"),
    )
    person.set_unusable_password()
    person.save()
    return person


def _free_name(claims: Mapping[str, Any]) -> str:
    claimed = _text(claims, "preferred_username") or _email(claims).partition("@")[0] or _text(claims, "name")
    name = re.sub(r"[^\w.@+-]+", "-", claimed).strip("-")[: MAX_NAME_LENGTH - 10] or "person"
    for number in count(1):
        candidate = name if number == 1 else f"{name}-{number}"
        if not User.objects.filter(username__iexact=candidate).exists():
            return candidate
    raise AssertionError("there is always another number")


def _email(claims: Mapping[str, Any]) -> str:
    """Return the claimed address; empty if it is invalid."""
    email = _text(claims, "email", 254)
    try:
        validate_email(email)
    except ValidationError:
        return ""
    return email


def _text(claims: Mapping[str, Any], name: str, max_length: int = 150) -> str:
    value = claims.get(name)
    return value.replace("\0", "").strip()[:max_length] if isinstance(value, str) else ""


# Groups


def _groups(provider: OpenIDProvider, claims: Mapping[str, Any]) -> set[str] | None:
    """Return the claimed groups; None if the person's groups must not change.

    That is so if no claim is set, or if the provider sends a reference instead of the groups (`_claim_names`).
    """
    if not provider.groups_claim:
        return None
    references = claims.get("_claim_names")
    if isinstance(references, dict) and provider.groups_claim in references:
        logger.warning("%s sent a reference instead of the groups; the user's groups stay unchanged", provider)
        return None
    claimed = claims.get(provider.groups_claim, [])
    listed = [claimed] if isinstance(claimed, str) else claimed if isinstance(claimed, list) else []
    return {each for each in listed[:MAX_GROUPS] if isinstance(each, str)}


def _sync_superuser(provider: OpenIDProvider, identity: OpenIDIdentity, groups: set[str]) -> None:
    """Make a member of the administrators' group a superuser, and revoke this when they leave the group.

    Only a superuser whom the provider made one is demoted, and never the last one.
    """
    person = identity.user
    admin = bool(provider.admin_group) and provider.admin_group in groups
    if admin and not person.is_superuser:
        identity.made_admin = True
    elif admin or not identity.made_admin or is_last_admin(person):
        return
    else:
        identity.made_admin = False
    person.is_staff = person.is_superuser = admin
    person.save(update_fields=["is_staff", "is_superuser"])
    identity.save(update_fields=["made_admin"])
    rights = {name: [not admin, admin] for name in ("is_staff", "is_superuser")}
    changes = {"provider": provider.name, **rights}
    record(user=None, action="person.rights_changed", row=person, name=person.get_username(), changes=changes)


# Signing out


@transaction.atomic
def sign_out(*, provider: OpenIDProvider, claims: Mapping[str, Any]) -> int:
    """End the sessions of a verified logout token, with their sockets and streams. Return the number of sessions.

    The token names one session (`sid`), or all sessions of the person (`sub`) if it has no `sid`.
    """
    identities = OpenIDIdentity.objects.filter(issuer=provider.issuer)
    if "sub" in claims:
        identities = identities.filter(subject=claims["sub"])
    rows = Session.objects.filter(user__in=identities.values("user"))
    ended: dict[User, list[Session]] = {}
    for row in rows.select_related("user"):
        login = SessionStore().decode(row.session_data).get(OPENID_SESSION) or {}
        matches = "sid" not in claims or login == {"issuer": provider.issuer, "sid": claims["sid"]}
        if matches and row.user is not None:
            ended.setdefault(row.user, []).append(row)
    for person, sessions in ended.items():
        end(sessions)
        changes = {"provider": provider.name, "sessions": len(sessions)}
        record(user=None, action="person.signed_out_by_provider", row=person, name=str(person), changes=changes)
    return sum(map(len, ended.values()))
