"""Find or make the accounts of people who move here.

An account is matched by its confirmed e-mail address. A new one has no password: its owner signs in through the OpenID
provider, or through a link that an administrator makes.
"""

import re
from itertools import count

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction

from accounts.models import User
from chat.conversations.moving.sources import ForeignPerson
from core.audit.services import record

MAX_NAME_LENGTH = 140  # characters of a user name; its number comes behind
_UNWANTED = re.compile(r"[^\w.@+-]+")


class UnclearAccount(Exception):
    """It is unclear which account is the person's. Its text says why, and what to do."""


def account_of(person: ForeignPerson) -> User | None:
    """Return the only account with the person's confirmed e-mail address; None if no account has the address.

    An address that is not confirmed proves nothing: anybody may have entered it, and would get the conversations of
    another person. Raises `UnclearAccount`.
    """
    if not person.email:
        return None
    rows = list(User.objects.filter(email__iexact=person.email).order_by("-email_confirmed", "pk")[:2])
    if not rows:
        return None
    if not rows[0].email_confirmed:
        name = rows[0].get_username()
        raise UnclearAccount(f"the account “{name}” has not confirmed this address. Let its owner confirm or remove it")
    if len(rows) > 1 and rows[1].email_confirmed:
        raise UnclearAccount("several accounts have this e-mail address. Leave it to one of them")
    return rows[0]


@transaction.atomic
def create_account(person: ForeignPerson) -> User:
    """Make an account without a password. It is deactivated for people who waited to be let in."""
    first, _, last = person.name.rpartition(" ")
    user = User(
        username=_free_name(person),
        email=_valid_email(person.email),
        first_name=(first or last)[:150],
        last_name=(last if first else "")[:150],
        is_active=not person.waits,
    )
    user.set_unusable_password()
    user.save()
    record(user=None, action="person.added", row=user, name=user.get_username())
    return user


def _free_name(person: ForeignPerson) -> str:
    claimed = person.username or person.email.partition("@")[0] or person.name
    name = _UNWANTED.sub("-", claimed).strip("-")[:MAX_NAME_LENGTH] or "person"
    for number in count(1):
        candidate = name if number == 1 else f"{name}-{number}"
        if not User.objects.filter(username__iexact=candidate).exists():
            return candidate
    raise AssertionError("there is always another number")


def _valid_email(email: str) -> str:
    try:
        validate_email(email)
    except ValidationError:
        return ""
    return email[:254]
