"""Find or make the accounts of people who move here.

An account is matched by its e-mail address. A new one has no password: its owner signs in through the OpenID provider,
or through a link that an administrator makes.
"""

import re
from collections.abc import Iterable
from itertools import count

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction

from accounts.models import User
from chat.conversations.moving.sources import ForeignPerson
from core.audit.services import record

MAX_NAME_LENGTH = 140  # characters of a user name; its number comes behind
MAX_GROUP = 150  # characters of a group's name
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
    """Put a person into these groups, which are made without rights. Return the names of the groups they joined."""
    joined: list[str] = []
    for name in names:
        group = Group.objects.filter(name=name[:MAX_GROUP]).first()
        if group is None:
            group = Group.objects.create(name=name[:MAX_GROUP])
            record(user=None, action="group.added", row=group, name=group.name)
        # A group with rights is an administrators' one. Nobody gets rights because of a name in another product.
        if not group.permissions.exists() and not user.groups.filter(pk=group.pk).exists():
            user.groups.add(group)
            joined.append(group.name)
    if joined:
        record(
            user=None, action="person.rights_changed", row=user, name=user.get_username(), changes={"groups": joined}
        )
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
