"""Find or make the accounts of people who move here.

An account is matched by its e-mail address. A new one has no password: its owner signs in through the OpenID provider,
or through a link that an administrator makes.
"""

import re
from collections.abc import Iterable
from itertools import count

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction

from accounts.groups.services import add_members, save_group
from accounts.models import PeopleGroup, User
from chat.conversations.moving.sources import ForeignPerson
from core.audit.services import record

MAX_NAME_LENGTH = 140  # characters of a user name; its number comes behind
_UNWANTED = re.compile(r"[^\w.@+-]+")


def account_of(person: ForeignPerson) -> User | None:
    """Return the only account with the person's e-mail address; None without one."""
    if not person.email:
        return None
    people = list(User.objects.filter(email__iexact=person.email).order_by("pk")[:2])
    return people[0] if len(people) == 1 else None


def is_ambiguous(person: ForeignPerson) -> bool:
    """Return whether several accounts have the person's e-mail address."""
    return bool(person.email) and User.objects.filter(email__iexact=person.email).count() > 1


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


@transaction.atomic
def join_groups(user: User, names: Iterable[str]) -> list[str]:
    """Put a person into the groups of people with these names. Return the names of the groups they joined.

    A missing group is made without rights. A group that follows a claim is left out, since the provider decides who is
    in it.
    """
    joined: list[str] = []
    for name in dict.fromkeys(" ".join(name.split())[: PeopleGroup.MAX_NAME].strip() for name in names):
        group = PeopleGroup.objects.filter(name=name).first()
        if group is None and name:
            group = save_group(user=None, group=None, fields={"name": name})
        if group is None or group.everyone or group.claim:
            continue
        if add_members(user=None, group=group, people=[user]):
            joined.append(group.name)
    return joined


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
