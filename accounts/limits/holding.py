"""Which limits hold for whom. Who holds people to them: `chat.ledger.limits`, and `files.services` for storage."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from accounts.access.rights import rights_of
from accounts.models import Limit
from workspace.models.version import Kept


@dataclass(frozen=True, slots=True)
class Limits:
    """All of the workspace."""

    for_everyone: tuple[Limit, ...]
    for_people: dict[UUID, list[Limit]]
    for_groups: dict[UUID, list[Limit]]
    for_tokens: dict[UUID, list[Limit]]


def _read() -> Limits:
    found = Limits((), {}, {}, {})
    everyone: list[Limit] = []
    for limit in Limit.objects.all():
        if limit.user_id is not None:
            found.for_people.setdefault(limit.user_id, []).append(limit)
        elif limit.group_id is not None:
            found.for_groups.setdefault(limit.group_id, []).append(limit)
        elif limit.token_id is not None:
            found.for_tokens.setdefault(limit.token_id, []).append(limit)
        else:
            everyone.append(limit)
    return Limits(tuple(everyone), found.for_people, found.for_groups, found.for_tokens)


_kept = Kept(_read)


def limits_of_person(person: UUID, version: UUID | None = None) -> list[Limit]:
    """Of each unit and time the strictest, in the order of `Limit.Unit`, as they were at this version of the workspace
    or later; as they are now, by a query for the version, without one. Groups are asked for where one has a limit."""
    limits = _kept.at(version)
    groups = rights_of(person, version).groups if limits.for_groups else ()
    of_groups = [each for group in groups for each in limits.for_groups.get(group, ())]
    return _strictest([*limits.for_everyone, *limits.for_people.get(person, ()), *of_groups])


def limits_of_token(token: UUID | None, version: UUID | None = None) -> list[Limit]:
    """As those of a person; those of the token's person hold besides."""
    return _strictest(_kept.at(version).for_tokens.get(token, ())) if token is not None else []


def most_at_once(person: UUID, unit: str, version: UUID | None = None) -> Decimal | None:
    """Of what is limited at any moment; None without a limit."""
    return next((limit.amount for limit in limits_of_person(person, version) if limit.unit == unit), None)


def _strictest(limits: Iterable[Limit]) -> list[Limit]:
    found: dict[tuple[int, str], Limit] = {}
    for limit in limits:
        kind = (Limit.Unit.values.index(limit.unit), limit.per)
        if kind not in found or limit.amount < found[kind].amount:
            found[kind] = limit
    return [found[kind] for kind in sorted(found)]
