"""Changes to groups of people. `accounts.access.rights` computes a person's rights from them."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypedDict
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.db import transaction

from accounts.models import PeopleGroup, Right, User
from core.audit.services import field_changes, load_stored, record
from core.errors import NotFound, ProductError, invalid_setting
from core.permissions import has_right, require_right, require_store
from core.sentences import Sentence
from llm.models import Model, ToolServer

FIELDS = ("name", "claim", "all_models", "all_tool_servers", "may", "conversation_days")
RELATED = ("members", "managers", "allowed_models", "allowed_tool_servers")
EVERYONE_FIELDS = ("all_models", "allowed_models", "all_tool_servers", "allowed_tool_servers", "may")


class GroupFields(TypedDict, total=False):
    """Fields to change: the names of `FIELDS` and `RELATED`."""

    name: str
    claim: str
    all_models: bool
    all_tool_servers: bool
    may: Sequence[str]
    conversation_days: int | None
    members: Collection[User]
    managers: Collection[User]
    allowed_models: Collection[Model]
    allowed_tool_servers: Collection[ToolServer]


class IdChanges(TypedDict):
    """The ids of rows that were added to and removed from a related list."""

    added: list[str]
    removed: list[str]


@transaction.atomic
def save_group(*, user: AbstractUser | None, group: PeopleGroup | None, fields: GroupFields) -> PeopleGroup:
    """Store a group with these fields. Other fields stay unchanged. `group` None creates a group.

    Raises `invalid_setting`, and `everyone_is_fixed` (409) for fields that “Everyone” cannot have: another name, a
    claim, its own members and managers, or days for conversations, which are a setting of the workspace.
    """
    row = PeopleGroup() if group is None else _lock(group.pk)
    require_store(user, row)
    before = load_stored(row)
    adding = row._state.adding
    fixed_fields = [
        name for name in (*FIELDS, *RELATED) if row.everyone and name in fields and name not in EVERYONE_FIELDS
    ]
    if fixed_fields:
        sentence = Sentence(
            "The “{fixed}” of “Everyone” cannot be changed. Create another group.",
            fixed=fixed_fields[0],
        )
        raise ProductError("everyone_is_fixed", sentence, status=409)
    may = fields.get("may", row.may)
    row.name = " ".join(fields.get("name", row.name).split())
    row.claim = fields.get("claim", row.claim).strip()
    row.all_models = fields.get("all_models", row.all_models)
    row.all_tool_servers = fields.get("all_tool_servers", row.all_tool_servers)
    row.may = [right for right in Right.values if right in may] if set(may) <= set(Right.values) else list(may)
    row.conversation_days = fields.get("conversation_days", row.conversation_days)
    try:
        row.full_clean(validate_constraints=False)
    except ValidationError as error:
        raise invalid_setting(error.message_dict) from error
    row.save()
    changes = field_changes(before or PeopleGroup(), row) | _set_related(row, fields)
    if row.may != (before.may if before else []):
        changes["may"] = [before.may if before else [], row.may]
    if adding or changes:
        action = "people_group.added" if adding else "people_group.changed"
        record(user=user, action=action, row=row, name=row.name, changes=changes)
    return row


def _set_related(row: PeopleGroup, fields: GroupFields) -> dict[str, IdChanges]:
    """Set the related rows. Returns the changes as ids, since ids stay valid after a person is erased."""
    related: dict[str, tuple[Any, Collection[Any] | None]] = {
        "members": (row.members, fields.get("members")),
        "managers": (row.managers, fields.get("managers")),
        "allowed_models": (row.allowed_models, fields.get("allowed_models")),
        "allowed_tool_servers": (row.allowed_tool_servers, fields.get("allowed_tool_servers")),
    }
    changes: dict[str, IdChanges] = {}
    for name, (manager, rows) in related.items():
        if rows is None:
            continue
        before = set(manager.values_list("pk", flat=True))
        after = {each.pk for each in rows}
        if before != after:
            manager.set(rows)
            changes[name] = {"added": _ids(after - before), "removed": _ids(before - after)}
    return changes


def _ids(keys: Iterable[UUID]) -> list[str]:
    return sorted(map(str, keys))


@transaction.atomic
def delete_group(*, user: AbstractUser, group: PeopleGroup) -> None:
    """Delete a group. Its members lose its rights at once. Raises `everyone_is_fixed` (409)."""
    require_right(user, "delete", group)
    if group.everyone:
        sentence = Sentence("“Everyone” cannot be deleted. Remove its rights instead.")
        raise ProductError("everyone_is_fixed", sentence, status=409)
    record(user=user, action="people_group.deleted", row=group, name=group.name)
    group.delete()


def may_manage(user: User, group: PeopleGroup) -> bool:
    """Return whether the person may change the members, as a manager or an administrator who may change groups."""
    if group.everyone:
        return False
    return has_right(user, "change", group) or group.managers.filter(pk=user.pk).exists()


def require_manager(user: User, group: PeopleGroup) -> None:
    """Raise `not_manager` (403) if the person may not change the members, `NotFound` if they cannot see the group."""
    if may_manage(user, group):
        return
    if not PeopleGroup.objects.visible_to(user).filter(pk=group.pk).exists():
        raise NotFound("group")
    sentence = Sentence("Only the managers of this group can change its members. Ask one of them, or an administrator.")
    raise ProductError("not_manager", sentence, status=403)


@transaction.atomic
def add_members(*, user: User | None, group: PeopleGroup, people: Collection[User]) -> int:
    """Add people to a group. Returns the number of new members. Without a user, the product itself acts."""
    if user is not None:
        require_manager(user, group)
    return len(_change_members(user, _lock(group.pk), people, ()))


@transaction.atomic
def remove_members(*, user: User, group: PeopleGroup, people: Collection[User]) -> int:
    """Remove people from a group, who lose its rights at once. Returns the number of removed members."""
    require_manager(user, group)
    return len(_change_members(user, _lock(group.pk), (), people))


@transaction.atomic
def follow_claims(*, person: User, claims: Collection[str]) -> None:
    """Add a person at sign-in to the groups with these claims, and remove them from groups with other claims."""
    before = set(PeopleGroup.objects.filter(members=person).exclude(claim="").values_list("pk", flat=True))
    after = set(PeopleGroup.objects.filter(claim__in=[each for each in claims if each]).values_list("pk", flat=True))
    for pk in after ^ before:
        group = _lock(pk)
        _change_members(None, group, [person] if pk in after else (), () if pk in after else [person])


def _change_members(user: User | None, group: PeopleGroup, into: Collection[User], out: Collection[User]) -> set[UUID]:
    """Add and remove people. Returns the ids of the people who were added or removed."""
    keys = {person.pk for person in (*into, *out)}
    members = set(group.members.filter(pk__in=keys).values_list("pk", flat=True))
    added = {person.pk for person in into} - members
    removed = {person.pk for person in out} & members
    if added or removed:
        group.members.add(*(person for person in into if person.pk in added))
        group.members.remove(*(person for person in out if person.pk in removed))
        changes: dict[str, IdChanges] = {"members": {"added": _ids(added), "removed": _ids(removed)}}
        record(user=user, action="people_group.members_changed", row=group, name=group.name, changes=changes)
    return added | removed


def _lock(pk: UUID) -> PeopleGroup:
    row = PeopleGroup.objects.select_for_update().filter(pk=pk).first()
    if row is None:
        raise NotFound("group")
    return row
