"""Who holds people and their programs to the limits: what was used, by the ledger, and what is set aside.

A turn that begins sets aside what its plan may take, on its row, and gives it back by ending. So what is set aside is
that of live turns, whatever becomes of their workers, and of many turns at once no two go by the same sum: those of one
person begin one after the other (`chat.models.conversation_state.lock`).

The last turn that a limit lets begin may go over it by its answer; the next one does not begin. A turn whose prompt
alone is more than what is left does not begin either.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from math import ceil
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.template.defaultfilters import filesizeformat
from django.utils import timezone
from django.utils.translation import gettext as _

from accounts.limits.holding import limits_of_person, limits_of_token, most_at_once
from accounts.models import Limit, User
from accounts.models.limit import period
from chat.ledger.models import ModelCall
from chat.models import Turn
from chat.models.queries import executed
from core.errors import ProductError
from core.i18n import dollars, grouped, percent
from core.sentences import Sentence
from files.services import stored_bytes

WARN_FROM = 80  # percent
SOON = 30  # seconds; where a limit is reached only by what is set aside, an answer that ends gives some of it back
_ANSWERS = (str(ModelCall.Purpose.ANSWER), str(ModelCall.Purpose.RUN))

# What a person has used up is that of days that are over, by their sums, and of the calls since then.
_OF_PERSON = """
    SELECT FALSE AS of_token, FALSE AS reserved, FALSE AS today,
        s.input + s.output AS tokens, s.cost AS money, s.answers AS turns
    FROM chat_personsum s
    WHERE s.person_id = %(person)s AND s.day_id >= %(first)s AND s.day_id <= (SELECT day FROM summed)
    UNION ALL
    SELECT FALSE, FALSE, c.created >= %(today)s, c.input + c.output, c.cost,
        (c.number = 1 AND c.purpose = ANY(%(answers)s))::int
    FROM chat_modelcall c
    WHERE c.person_id = %(person)s AND c.created >= (
        SELECT GREATEST(%(since)s, ((max(day) + 1)::timestamp AT TIME ZONE %(zone)s)) FROM summed
    )
    UNION ALL
    SELECT FALSE, TRUE, TRUE, t.reserved_tokens, t.reserved_cost, 1
    FROM chat_turn t JOIN chat_conversation c ON c.id = t.conversation_id
    WHERE c.owner_id = %(person)s AND t.status IN ('queued', 'running')
    UNION ALL
    SELECT FALSE, TRUE, TRUE, GREATEST(0, r.tokens - COALESCE(used.tokens, 0)),
        GREATEST(0, r.cost - COALESCE(used.cost, 0)), 0
    FROM chat_reading r CROSS JOIN LATERAL (
        SELECT sum(m.input + m.output) AS tokens, sum(m.cost) AS cost FROM chat_modelcall m WHERE m.reading_id = r.id
    ) used
    WHERE r.person_id = %(person)s AND r.status IN ('queued', 'running', 'checking')
"""
_OF_PROGRAM = """
    SELECT TRUE AS of_token, FALSE AS reserved, c.created >= %(today)s AS today,
        c.input + c.output AS tokens, c.cost AS money, (c.number = 1 AND c.purpose = ANY(%(answers)s))::int AS turns
    FROM chat_modelcall c WHERE c.token_id = %(token)s AND c.created >= %(since)s
    UNION ALL
    SELECT TRUE, TRUE, TRUE, t.reserved_tokens, t.reserved_cost, 1
    FROM chat_turn t JOIN chat_conversation c ON c.id = t.conversation_id
    WHERE c.owner_id = %(person)s AND t.token_id = %(token)s AND t.status IN ('queued', 'running')
    UNION ALL
    SELECT TRUE, TRUE, TRUE, GREATEST(0, r.tokens - COALESCE(used.tokens, 0)),
        GREATEST(0, r.cost - COALESCE(used.cost, 0)), 0
    FROM chat_reading r CROSS JOIN LATERAL (
        SELECT sum(m.input + m.output) AS tokens, sum(m.cost) AS cost FROM chat_modelcall m WHERE m.reading_id = r.id
    ) used
    WHERE r.person_id = %(person)s AND r.token_id = %(token)s AND r.status IN ('queued', 'running', 'checking')
"""
_SUMS = """
WITH summed AS (SELECT max(day) AS day FROM chat_usageday WHERE zone = %(zone)s AND by_person)
SELECT of_token, reserved, today, COALESCE(sum(tokens), 0), COALESCE(sum(money), 0), COALESCE(sum(turns), 0)
FROM ({of}) used GROUP BY of_token, reserved, today
"""
_SUMMED = (Limit.Unit.TOKENS, Limit.Unit.MONEY, Limit.Unit.TURNS)  # in the order of the columns


@dataclass(frozen=True, slots=True)
class LimitState:
    """How far a limit is used up, and what is set aside of it for answers that are being written; in its unit."""

    limit: Limit
    used: Decimal
    reserved: Decimal
    resets: datetime

    @property
    def share(self) -> Decimal:
        """Percent."""
        return 100 * self.used / self.limit.amount if self.limit.amount else Decimal(100)

    def reached(self, turns: int = 0) -> bool:
        """Whether no more may begin, of turns so many more."""
        taken = self.used + self.reserved
        if self.limit.unit == Limit.Unit.TURNS:
            return taken + max(1, turns) > self.limit.amount
        return taken >= self.limit.amount

    def lets_through(self, prompt: "PlannedPrompt") -> bool:
        """Return whether what is left is enough for a prompt."""
        needed = {Limit.Unit.TOKENS: Decimal(prompt.tokens), Limit.Unit.MONEY: prompt.cost or Decimal(0)}
        unit = Limit.Unit(self.limit.unit)
        return unit not in needed or self.used + self.reserved + needed[unit] <= self.limit.amount

    def as_json(self) -> dict[str, Any]:
        """As programs have it; numbers are exact, as text."""
        limit, resets = self.limit, self.resets.isoformat()
        numbers = {"amount": f"{limit.amount.normalize():f}", "used": f"{self.used.normalize():f}"}
        return {"unit": limit.unit, "per": limit.per, **numbers, "resets": resets}


def limits_of(person: UUID, token: UUID | None, version: UUID | None) -> list[Limit]:
    """Those that a turn may use up; `token`: with which a program asks."""
    limits = [*limits_of_person(person, version), *limits_of_token(token, version)]
    return [each for each in limits if each.unit in Limit.USED_UP]


def states(person: UUID, limits: Sequence[Limit]) -> list[LimitState]:
    """Of limits that are used up, in their order, by one query; none without limits."""
    if not limits:
        return []
    now, token = timezone.now(), next((each.token_id for each in limits if each.token_id is not None), None)
    of_person = any(each.token_id is None for each in limits)
    parts = [_OF_PERSON] if of_person else []
    statement = _SUMS.replace("{of}", " UNION ALL ".join([*parts, _OF_PROGRAM] if token is not None else parts))
    monthly = any(each.per == Limit.Per.MONTH for each in limits)
    with executed(statement, _bound(person, token, now, monthly=monthly)) as cursor:
        found = {tuple(row[:3]): row[3:] for row in cursor.fetchall()}
    return [_state(each, found, now) for each in limits]


def _bound(person: UUID, token: UUID | None, now: datetime, *, monthly: bool) -> dict[str, Any]:
    today, _tomorrow = period(Limit.Per.DAY, now)
    since = period(Limit.Per.MONTH, now)[0] if monthly else today
    zone = str(timezone.get_default_timezone())
    times = {"today": today, "since": since, "first": since.date(), "zone": zone}
    return {"person": person, "token": token, "answers": list(_ANSWERS), **times}


def _state(limit: Limit, sums: Mapping[tuple[bool, ...], Sequence[Decimal]], now: datetime) -> LimitState:
    column, of_token = _SUMMED.index(Limit.Unit(limit.unit)), limit.token_id is not None

    def total(*, reserved: bool, today: bool) -> Decimal:
        kind = (of_token, reserved, today)
        return Decimal(sums[kind][column]) if kind in sums else Decimal(0)

    used = total(reserved=False, today=True)
    if limit.per == Limit.Per.MONTH:
        used += total(reserved=False, today=False)
    return LimitState(limit, used, total(reserved=True, today=True), limit.period(now)[1])


def require_within(person: UUID, token: UUID | None, version: UUID | None, turns: int = 0) -> list[LimitState]:
    """Return the limits to set something aside of. Raises `limit_reached` (429) where one of them lets nothing more
    begin; `turns` are how many would. Without a limit it asks the database for nothing.

    Call it with the person's line locked (`chat.models.conversation_state.lock`).
    """
    held = states(person, limits_of(person, token, version))
    for state in held:
        if state.reached(turns):
            raise _refusal(state)
    return held


class PlannedPrompt(NamedTuple):
    """What the prompt of a turn takes at least: tokens, and US dollars, None without a price."""

    tokens: int
    cost: Decimal | None


def require_prompt_within(limits: Sequence[LimitState], prompt: PlannedPrompt) -> None:
    """Raises `limit_reached` (429) where the prompt alone takes more than one of the limits has left."""
    for state in limits:
        if not state.lets_through(prompt):
            raise _refusal(state, prompt)


def require_unused(person: UUID, token: UUID | None) -> None:
    """For what the product does by itself, which nobody waits for: raises `limit_reached` where tokens or money are
    used up. What is set aside for answers stands in its way as little as their number."""
    for state in states(person, limits_of(person, token, None)):
        if state.limit.unit != Limit.Unit.TURNS and state.used >= state.limit.amount:
            raise _refusal(state)


def require_room(person: UUID, token: UUID | None) -> None:
    """For calls that are no turns: raises `limit_reached` where tokens or money are used up or set aside.

    Call it with the person's line locked (`chat.models.conversation_state.join_line`).
    """
    for state in states(person, limits_of(person, token, None)):
        if state.limit.unit != Limit.Unit.TURNS and state.reached():
            raise _refusal(state)


def _refusal(state: LimitState, prompt: PlannedPrompt | None = None) -> ProductError:
    limit, now = state.limit, timezone.now()
    only_reserved = state.used < limit.amount
    if prompt is not None:
        only_reserved = replace(state, reserved=Decimal(0)).lets_through(prompt)
    sentence = _sentence(state, only_reserved=only_reserved)
    if prompt is not None and not only_reserved:
        sentence = Sentence(
            "What would be sent is more than is left of your limit. Leave out files or earlier messages, or wait until "
            "it begins anew at {resets}; your text is kept.",
            resets=f"{state.resets:%Y-%m-%d %H:%M %Z}",
        )
    return ProductError(
        "limit_reached",
        sentence,
        status=429,
        retry_after=SOON if only_reserved else max(1, ceil((state.resets - now).total_seconds())),
        limit={"for": "token" if limit.token_id is not None else "user", **state.as_json()},
    )


def _sentence(state: LimitState, *, only_reserved: bool) -> Sentence:
    if only_reserved:
        return Sentence(
            "What is being answered may use up your limit. Wait until it is complete, then send; your text is kept."
        )
    limit, resets = state.limit, f"{state.resets:%Y-%m-%d %H:%M %Z}"
    most = Decimal(f"{limit.amount.normalize():f}")
    match limit.unit, limit.per:
        case Limit.Unit.TOKENS, Limit.Per.DAY:
            return Sentence(
                "The limit of {most} tokens (pieces of words) a day is reached. It begins anew at {resets}; your "
                "text is kept.",
                most=most,
                resets=resets,
            )
        case Limit.Unit.TOKENS, _:
            return Sentence(
                "The limit of {most} tokens (pieces of words) a month is reached. It begins anew at {resets}; your "
                "text is kept.",
                most=most,
                resets=resets,
            )
        case Limit.Unit.MONEY, Limit.Per.DAY:
            return Sentence(
                "The limit of ${most} a day is reached. It begins anew at {resets}; your text is kept.",
                most=most,
                resets=resets,
            )
        case Limit.Unit.MONEY, _:
            return Sentence(
                "The limit of ${most} a month is reached. It begins anew at {resets}; your text is kept.",
                most=most,
                resets=resets,
            )
        case _, Limit.Per.DAY:
            return Sentence(
                "The limit of {most} turns a day is reached. It begins anew at {resets}; your text is kept.",
                most=most,
                resets=resets,
            )
    return Sentence(
        "The limit of {most} turns a month is reached. It begins anew at {resets}; your text is kept.",
        most=most,
        resets=resets,
    )


def turns_at_once(person: UUID, version: UUID | None = None) -> int | None:
    """How many turns of one person may be live: what everybody may have, or less where a limit says so; None is any."""
    limit = most_at_once(person, Limit.Unit.LIVE_TURNS, version)
    said = [settings.LIVE_TURNS or None, None if limit is None else int(limit)]
    return min((each for each in said if each is not None), default=None)


def most_used(person: UUID) -> dict[str, str] | None:
    """The limit of which the largest part is used up, where that is so much that it is said before one sends."""
    found = states(person, limits_of(person, None, None))
    nearest = max(found, key=lambda state: state.share, default=None)
    return nearest.as_json() if nearest is not None and nearest.share >= WARN_FROM else None


def all_states(person: User, token: UUID | None = None) -> list[dict[str, Any]]:
    """Of every limit of a person, as `LimitState.as_json`, and those of the token with which a program asks."""
    now = []
    for unit, used in ((Limit.Unit.STORAGE, stored_bytes), (Limit.Unit.LIVE_TURNS, _live)):
        most = most_at_once(person.pk, unit)
        if most is not None:
            said = {"unit": unit.value, "per": None, "amount": f"{most.normalize():f}", "used": str(used(person))}
            now.append({**said, "resets": None})
    used_up = states(person.pk, limits_of(person.pk, token, None))
    return [*(state.as_json() for state in used_up), *now]


def _live(person: User) -> int:
    return Turn.objects.live().filter(conversation__owner=person).count()


def in_words(state: Mapping[str, Any]) -> dict[str, str]:
    """For pages, of `LimitState.as_json`: what is limited, the most, and how much of that is used."""
    kinds = {
        (Limit.Unit.TOKENS, Limit.Per.DAY): _("Tokens a day"),
        (Limit.Unit.TOKENS, Limit.Per.MONTH): _("Tokens a month"),
        (Limit.Unit.MONEY, Limit.Per.DAY): _("Money a day"),
        (Limit.Unit.MONEY, Limit.Per.MONTH): _("Money a month"),
        (Limit.Unit.TURNS, Limit.Per.DAY): _("Turns a day"),
        (Limit.Unit.TURNS, Limit.Per.MONTH): _("Turns a month"),
        (Limit.Unit.STORAGE, None): _("Stored"),
        (Limit.Unit.LIVE_TURNS, None): _("Turns at once"),
    }
    unit, used, most = Limit.Unit(state["unit"]), Decimal(state["used"]), Decimal(state["amount"])
    numbers: dict[Limit.Unit, Callable[[Decimal], str]] = {Limit.Unit.MONEY: dollars, Limit.Unit.STORAGE: _size}
    number = numbers.get(unit, _whole)
    return {
        "what": kinds[unit, state["per"]],
        "used": number(used),
        "most": number(most),
        "share": percent(int(1000 * min(used, most) / most) if most else 1000, 1000),
    }


def _size(number: Decimal) -> str:
    return filesizeformat(int(number))


def _whole(number: Decimal) -> str:
    return grouped(int(number))
