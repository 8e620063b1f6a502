"""Every change to groups of people. What comes of them for a person is in `accounts.access.rights`."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.db import transaction

from accounts.models import May, PeopleGroup, User
from core.audit.services import changed, record, stored
from core.errors import NotFound, ProductError, invalid_setting
from core.permissions import has_right, require_right, require_store
from core.sentences import Sentence

FIELDS = ("name", "claim", "all_models", "all_tool_servers", "may", "conversation_days")
RELATED = ("members", "managers", "allowed_models", "allowed_tool_servers")
OF_EVERYONE = ("all_models", "allowed_models", "all_tool_servers", "allowed_tool_servers", "may")


@transaction.atomic
def save_group(*, user: AbstractUser | None, group: PeopleGroup | None, fields: Mapping[str, Any]) -> PeopleGroup:
    """Stores a group, a new one where it is None, with these of `FIELDS` and, as rows, of `RELATED`; what is not named
    stays.

    Raises `invalid_setting`, and `everyone_is_fixed` (409) for what “Everyone” cannot have: another name, a claim,
    members and managers of its own, or days for conversations, which the workspace has.
    """
    row = PeopleGroup() if group is None else _locked(group.pk)
    require_store(user, row)
    before, adding = stored(row), row._state.adding
    fixed = [name for name in (*FIELDS, *RELATED) if row.everyone and name in fields and name not in OF_EVERYONE]
    if fixed:
        sentence = Sentence(
            "“Everyone” has no “{fixed}” to change: everybody is in it, always. Make another group.", fixed=fixed[0]
        )
        raise ProductError("everyone_is_fixed", sentence, status=409)
    for name in FIELDS:
        setattr(row, name, fields.get(name, getattr(row, name)))
    row.name, row.claim = " ".join(row.name.split()), row.claim.strip()
    row.may = [right for right in May.values if right in row.may] if set(row.may) <= set(May.values) else row.may
    try:
        row.full_clean(validate_constraints=False)
    except ValidationError as error:
        raise invalid_setting(error.message_dict) from error
    row.save()
    changes = changed(before or PeopleGroup(), row) | _set_related(row, fields)
    if row.may != (before.may if before else []):
        changes["may"] = [before.may if before else [], row.may]
    if adding or changes:
        action = "people_group.added" if adding else "people_group.changed"
        record(user=user, action=action, row=row, name=row.name, changes=changes)
    return row


def _set_related(row: PeopleGroup, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What was put in and taken out, by ids, which stay as they are when a person is erased."""
    changes: dict[str, Any] = {}
    for name in (each for each in RELATED if each in fields):
        related = getattr(row, name)
        held = set(related.values_list("pk", flat=True))
        wanted = {each.pk for each in fields[name]}
        if held != wanted:
            related.set(fields[name])
            changes[name] = {"added": _ids(wanted - held), "removed": _ids(held - wanted)}
    return changes


def _ids(keys: Iterable[UUID]) -> list[str]:
    return sorted(map(str, keys))


@transaction.atomic
def delete_group(*, user: AbstractUser, group: PeopleGroup) -> None:
    """What it gave is gone at once. Raises `everyone_is_fixed` (409)."""
    require_right(user, "delete", group)
    if group.everyone:
        sentence = Sentence(
            "“Everyone” cannot be deleted: everybody is in it, always. Take away what it gives instead."
        )
        raise ProductError("everyone_is_fixed", sentence, status=409)
    record(user=user, action="people_group.deleted", row=group, name=group.name)
    group.delete()


def may_manage(user: User, group: PeopleGroup) -> bool:
    """Whether this person says who is in it: its managers, and administrators with the right to change groups."""
    if group.everyone:
        return False
    return has_right(user, "change", group) or group.managers.filter(pk=user.pk).exists()


def require_manager(user: User, group: PeopleGroup) -> None:
    """Raises `NotFound` for who does not see the group, `not_manager` (403) for who does."""
    if may_manage(user, group):
        return
    if not PeopleGroup.objects.visible_to(user).filter(pk=group.pk).exists():
        raise NotFound("group")
    sentence = Sentence("Only its managers say who is in this group. Ask one of them, or an administrator.")
    raise ProductError("not_manager", sentence, status=403)


@transaction.atomic
def add_members(*, user: User, group: PeopleGroup, people: Collection[User]) -> int:
    """Puts people in; how many of them were not in it."""
    require_manager(user, group)
    return len(_move(user, _locked(group.pk), people, ()))


@transaction.atomic
def remove_members(*, user: User, group: PeopleGroup, people: Collection[User]) -> int:
    """Takes people out; how many of them were in it. What it gave them is gone at once."""
    require_manager(user, group)
    return len(_move(user, _locked(group.pk), (), people))


@transaction.atomic
def follow_claims(*, person: User, claims: Collection[str]) -> None:
    """Puts somebody who has just signed in into the groups whose claim is one of `claims`, and takes them out of all
    others that follow one."""
    held = set(PeopleGroup.objects.filter(members=person).exclude(claim="").values_list("pk", flat=True))
    wanted = set(PeopleGroup.objects.filter(claim__in=[each for each in claims if each]).values_list("pk", flat=True))
    for pk in wanted ^ held:
        group = _locked(pk)
        _move(None, group, [person] if pk in wanted else (), () if pk in wanted else [person])


def _move(user: User | None, group: PeopleGroup, into: Collection[User], out: Collection[User]) -> set[UUID]:
    """Who was put in or taken out."""
    keys = {person.pk for person in (*into, *out)}
    held = set(group.members.filter(pk__in=keys).values_list("pk", flat=True))
    added, removed = {person.pk for person in into} - held, {person.pk for person in out} & held
    if added or removed:
        group.members.add(*(person for person in into if person.pk in added))
        group.members.remove(*(person for person in out if person.pk in removed))
        said = {"members": {"added": _ids(added), "removed": _ids(removed)}}
        record(user=user, action="people_group.members_changed", row=group, name=group.name, changes=said)
    return added | removed


def _locked(pk: UUID) -> PeopleGroup:
    found = PeopleGroup.objects.select_for_update().filter(pk=pk).first()
    if found is None:
        raise NotFound("group")
    return found
