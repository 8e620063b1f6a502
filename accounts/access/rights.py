"""What a person may do and use: what one of their groups lets them. Pages, API, sockets, Celery tasks, the OpenAI
protocol and tools ask here, and nowhere else.

Nobody is exempt, superusers neither: who may change groups can put themselves into one. What a person may change in the
admin is another matter, see `core.permissions`.

What is asked of a model for a person goes to those that they may use, fallbacks too: answers, runs, titles, and
summaries that the conversation's model writes. What an administrator names for all is the workspace's own choice, which
nobody needs a right to: a budget profile's model for summaries, those that judge citations and read pages, and what
stands in for them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from django.db.models import QuerySet
from django.utils.translation import gettext_noop

from accounts.models import May, PeopleGroup, User
from core.errors import ProductError
from llm.models import Model
from llm.services import usable_models
from workspace.models import Workspace
from workspace.models.version import VersionedCache, VersionedCacheByKey, version_now

Named = TypeVar("Named", UUID, str)

LACKING = {
    May.SHARE: gettext_noop("None of your groups may share conversations by link. Ask an administrator."),
    May.TOKENS: gettext_noop("None of your groups may make API tokens. Ask an administrator."),
    May.PUBLISH_PERSONAS: gettext_noop(
        "None of your groups may make personas for others. Keep it private, or ask an administrator."
    ),
    May.UPLOAD: gettext_noop("None of your groups may upload files. Ask an administrator."),
    May.RUN_TASKS: gettext_noop("None of your groups may let models work through tasks. Ask an administrator."),
    May.WEB: gettext_noop("None of your groups may use the web in answers. Ask an administrator."),
    May.EXPORT: gettext_noop("None of your groups may export conversations. Ask an administrator."),
}


@dataclass(frozen=True, slots=True)
class Rights:
    """The union of what a person's `groups` (ids, “Everyone” among them) let them.

    `models` (ids) and `tool_servers` (names): None is all that are enabled. `conversation_days`: after how many days
    conversations go, 0 is never; None where no group says it. Of several that do, the fewest count.
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
    """What each group gives by itself, by its id, and what “Everyone” gives, also where it has no row."""
    models, servers = PeopleGroup.allowed_models.through, PeopleGroup.allowed_tool_servers.through
    named_models = _by_group(models.objects.values_list("peoplegroup", "model"))
    named_servers = _by_group(servers.objects.values_list("peoplegroup", "toolserver__name"))
    rows = list(PeopleGroup.objects.all())
    everyone = next((row for row in rows if row.everyone), None) or PeopleGroup.of_everyone()
    given = {
        row.pk: Rights(
            frozenset({row.pk}),
            None if row.all_models else named_models.get(row.pk, frozenset()),
            None if row.all_tool_servers else named_servers.get(row.pk, frozenset()),
            frozenset(row.may),
            row.conversation_days,
        )
        for row in (everyone, *rows)
    }
    return given, given[everyone.pk]


def _by_group(pairs: Iterable[tuple[UUID, Named]]) -> dict[UUID, frozenset[Named]]:
    found: dict[UUID, set[Named]] = {}
    for group, named in pairs:
        found.setdefault(group, set()).add(named)
    return {group: frozenset(names) for group, names in found.items()}


def _read_person(pk: UUID, version: UUID | None) -> Rights:
    mine = PeopleGroup.members.through.objects.filter(user_id=pk).values_list("peoplegroup", flat=True)
    given, everyone = _groups.get(version)
    return union([everyone, *(given[group] for group in mine if group in given)])


def union(several: Sequence[Rights]) -> Rights:
    """What all of them, at least one, give together."""
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
    """As they were at this version of the workspace or later; as they are now, by a query for the version, without one.

    A query once for each version, person and process.
    """
    return _people.get(person if isinstance(person, UUID) else person.pk, version)


def counted_to(person: UUID, version: UUID | None = None) -> UUID:
    """The one group that a person's usage is counted to: of several the oldest, which is the one with the least id, so
    that a group that is made later takes nobody's usage from another; “Everyone” for who is in no other."""
    version = version or version_now()
    _given, everyone = _groups.get(version)
    mine = rights_of(person, version).groups
    return min(mine - everyone.groups or mine)


def models_of(person: User | UUID, version: UUID | None = None) -> QuerySet[Model]:
    """The usable models that this person may use."""
    allowed = rights_of(person, version).models
    usable = Model.objects.usable()
    return usable if allowed is None else usable.filter(pk__in=allowed)


def kept_models_of(person: User | UUID, version: UUID | None = None) -> list[Model]:
    """As `models_of`, as `llm.services.usable_models` has them."""
    version = version or version_now()
    rights = rights_of(person, version)
    return [model for model in usable_models(version) if rights.uses_model(model.pk)]


def may(person: User, right: May, version: UUID | None = None) -> bool:
    return right in rights_of(person, version).may


def require(person: User, right: May, version: UUID | None = None) -> None:
    """Raises `right_missing` (403)."""
    if not may(person, right, version):
        raise ProductError("right_missing", LACKING[right], status=403)


def search_asks(user: User, workspace: Workspace) -> bool:
    """Return whether each web search for this person waits for their permission: the workspace wants it, or they do."""
    return workspace.search_approval or user.asks_before_search
