"""The rights and resources of a person: the union of the rights of their groups.

Pages, API, sockets, Celery tasks, the OpenAI protocol and tools check rights only here. Superusers are not exempt,
since they can add themselves to a group. `core.permissions` has the rights in the admin.

Answers, runs, titles, and summaries by the conversation's model use only models that the person may use. The same
holds for their fallbacks. Models that an administrator sets for all people need no right: a budget profile's summary
model, the models that judge citations and read pages, and their fallbacks.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from django.db.models import QuerySet
from django.utils.translation import gettext_noop

from accounts.models import PeopleGroup, Right, User
from core.errors import ProductError
from llm.models import Model
from llm.services import usable_models
from workspace.models import Workspace
from workspace.models.version import VersionedCache, VersionedCacheByKey, version_now

Named = TypeVar("Named", UUID, str)

MISSING_RIGHTS = {
    Right.SHARE: gettext_noop("None of your groups may share conversations by link. Ask an administrator."),
    Right.SHARE_INSIDE: gettext_noop(
        "None of your groups may share conversations with people here. Ask an administrator."
    ),
    Right.TOKENS: gettext_noop("None of your groups may create API tokens. Ask an administrator."),
    Right.PUBLISH_PERSONAS: gettext_noop(
        "None of your groups may create personas for others. Keep it private, or ask an administrator."
    ),
    Right.UPLOAD: gettext_noop("None of your groups may upload files. Ask an administrator."),
    Right.RUN_TASKS: gettext_noop("None of your groups may let models work through tasks. Ask an administrator."),
    Right.WEB: gettext_noop("None of your groups may use the web in answers. Ask an administrator."),
    Right.EXPORT: gettext_noop("None of your groups may export conversations. Ask an administrator."),
}


@dataclass(frozen=True, slots=True)
class Rights:
    """The union of the rights of a person's `groups` (ids, including “Everyone”).

    `models` (ids) and `tool_servers` (names): None means all enabled ones. `conversation_days`: days until
    conversations are erased; 0 means never, None that no group sets it. The smallest number of all groups applies.
    """

    groups: frozenset[UUID]
    models: frozenset[UUID] | None
    tool_servers: frozenset[str] | None
    may: frozenset[str]
    conversation_days: int | None = None

    def uses_model(self, pk: UUID) -> bool:
        return self.models is None or pk in self.models

    def uses_server(self, name: str) -> bool:
        return self.tool_servers is None or name in self.tool_servers


NO_RIGHTS = Rights(frozenset(), frozenset(), frozenset(), frozenset())


def _read_groups() -> tuple[Mapping[UUID, Rights], Rights]:
    """Return the rights of each group by its id, and the rights of “Everyone”, even if it has no row."""
    named_models = _by_group(PeopleGroup.allowed_models.through.objects.values_list("peoplegroup", "model"))
    servers = PeopleGroup.allowed_tool_servers.through.objects
    named_servers = _by_group(servers.values_list("peoplegroup", "toolserver__name"))
    rows = list(PeopleGroup.objects.all())
    everyone = next((row for row in rows if row.everyone), None) or PeopleGroup.of_everyone()
    rights = {
        row.pk: Rights(
            frozenset({row.pk}),
            None if row.all_models else named_models.get(row.pk, frozenset()),
            None if row.all_tool_servers else named_servers.get(row.pk, frozenset()),
            frozenset(row.may),
            row.conversation_days,
        )
        for row in (everyone, *rows)
    }
    return rights, rights[everyone.pk]


def _by_group(pairs: Iterable[tuple[UUID, Named]]) -> dict[UUID, frozenset[Named]]:
    by_group: dict[UUID, set[Named]] = {}
    for group, named in pairs:
        by_group.setdefault(group, set()).add(named)
    return {group: frozenset(names) for group, names in by_group.items()}


def _read_person(pk: UUID, version: UUID | None) -> Rights:
    mine = PeopleGroup.members.through.objects.filter(user_id=pk).values_list("peoplegroup", flat=True)
    by_group, everyone = _groups.get(version)
    return union([everyone, *(by_group[group] for group in mine if group in by_group)])


def union(several: Sequence[Rights]) -> Rights:
    """Return the union of rights. `several` must not be empty."""
    models = [each.models for each in several]
    servers = [each.tool_servers for each in several]
    days = [each.conversation_days for each in several if each.conversation_days is not None]
    return Rights(
        frozenset().union(*(each.groups for each in several)),
        None if None in models else frozenset().union(*(each or () for each in models)),
        None if None in servers else frozenset().union(*(each or () for each in servers)),
        frozenset().union(*(each.may for each in several)),
        min(days, key=lambda each: each or math.inf) if days else None,
    )


_groups = VersionedCache(_read_groups)
_people = VersionedCacheByKey(_read_person)


def rights_of(person: User | UUID, version: UUID | None = None) -> Rights:
    """Return a person's rights at this version of the workspace or a later one. None: a query reads the version.

    Costs one query per version, person and process.
    """
    return _people.get(person if isinstance(person, UUID) else person.pk, version)


def billing_group(person: UUID, version: UUID | None = None) -> UUID:
    """Return the group to which a person's usage is counted: their oldest group (smallest id), or “Everyone”.

    It is the oldest one, so that usage does not move to another group when the person joins one.
    """
    version = version or version_now()
    _by_id, everyone = _groups.get(version)
    mine = rights_of(person, version).groups
    return min(mine - everyone.groups or mine)


def models_of(person: User | UUID, version: UUID | None = None) -> QuerySet[Model]:
    """Return the usable models that this person may use."""
    allowed = rights_of(person, version).models
    usable = Model.objects.usable()
    return usable if allowed is None else usable.filter(pk__in=allowed)


def cached_models_of(person: User | UUID, version: UUID | None = None) -> list[Model]:
    """Return the models of `models_of` from the cache of `llm.services.usable_models`."""
    version = version or version_now()
    rights = rights_of(person, version)
    return [model for model in usable_models(version) if rights.uses_model(model.pk)]


def may(person: User, right: Right, version: UUID | None = None) -> bool:
    return right in rights_of(person, version).may


def require(person: User, right: Right, version: UUID | None = None) -> None:
    """Raise `right_missing` (403) if none of the person's groups has the right."""
    if not may(person, right, version):
        raise ProductError("right_missing", MISSING_RIGHTS[right], status=403)


def search_asks(user: User, workspace: Workspace) -> bool:
    """Return whether web searches wait for this person's permission, by the workspace's or the person's setting."""
    return workspace.search_approval or user.asks_before_search
