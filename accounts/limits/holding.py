"""The limits that hold for a user or a token. `chat.ledger.limits` enforces them, and `files.services` for storage.

They are cached for one version of the workspace (`workspace.models.version`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from accounts.access.rights import rights_of
from accounts.models import Limit
from workspace.models.version import VersionedCache


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits of the workspace."""

    for_everyone: tuple[Limit, ...]
    for_people: dict[UUID, list[Limit]]
    for_groups: dict[UUID, list[Limit]]
    for_tokens: dict[UUID, list[Limit]]


def _read() -> Limits:
    everyone: list[Limit] = []
    people: dict[UUID, list[Limit]] = {}
    groups: dict[UUID, list[Limit]] = {}
    tokens: dict[UUID, list[Limit]] = {}
    for limit in Limit.objects.all():
        if limit.user_id is not None:
            people.setdefault(limit.user_id, []).append(limit)
        elif limit.group_id is not None:
            groups.setdefault(limit.group_id, []).append(limit)
        elif limit.token_id is not None:
            tokens.setdefault(limit.token_id, []).append(limit)
        else:
            everyone.append(limit)
    return Limits(tuple(everyone), people, groups, tokens)


_limits = VersionedCache(_read)


def limits_of_person(person: UUID, version: UUID | None = None) -> list[Limit]:
    """Return the strictest limit of each unit and period, in the order of `Limit.Unit`.

    The limits are as of this version of the workspace or a later one. Without a version, a query reads the present one.
    The user's groups are read only if any group has a limit.
    """
    limits = _limits.get(version)
    groups = rights_of(person, version).groups if limits.for_groups else ()
    group_limits = [each for group in groups for each in limits.for_groups.get(group, ())]
    return _strictest([*limits.for_everyone, *limits.for_people.get(person, ()), *group_limits])


def limits_of_token(token: UUID | None, version: UUID | None = None) -> list[Limit]:
    """Return the limits of a token as `limits_of_person` does. The limits of its user hold in addition."""
    return _strictest(_limits.get(version).for_tokens.get(token, ())) if token is not None else []


def standing_limit(person: UUID, unit: str, version: UUID | None = None) -> Decimal | None:
    """Return a user's limit of a unit that has no period, such as storage; None without a limit."""
    return next((limit.amount for limit in limits_of_person(person, version) if limit.unit == unit), None)


def _strictest(limits: Iterable[Limit]) -> list[Limit]:
    strictest: dict[tuple[int, str], Limit] = {}
    for limit in limits:
        kind = (Limit.Unit.values.index(limit.unit), limit.per)
        if kind not in strictest or limit.amount < strictest[kind].amount:
            strictest[kind] = limit
    return [strictest[kind] for kind in sorted(strictest)]
