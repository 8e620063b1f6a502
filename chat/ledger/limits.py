"""Enforce the limits of users and API tokens, by the ledger and by the reservations of live turns.

1. `require_within_limits` checks the limits before a turn starts. The turns of one user start one after the other,
   since the caller holds the lock of the user (`chat.models.conversation_state.lock`). So two turns never rely on the
   same sum.
2. `require_prompt_within` refuses a turn whose prompt alone exceeds the rest of a limit.
3. The turn reserves on its row what its plan may use. The reservation ends with the turn, also if its worker is lost.

The answer of the last turn that a limit admits may exceed the limit. The next turn is refused.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from math import ceil
from typing import NamedTuple, TypedDict
from uuid import UUID

from django.conf import settings
from django.template.defaultfilters import filesizeformat
from django.utils import timezone
from django.utils.translation import gettext as _

from accounts.limits.holding import limits_of_person, limits_of_token, standing_limit
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
RETRY_AFTER = 30  # seconds to wait if only reservations reach the limit; each answer releases its own when it ends
_ANSWERS = (str(ModelCall.Purpose.ANSWER), str(ModelCall.Purpose.RUN))

# The usage of a user: the stored sums of past days, the calls since then, and the reservations of turns and readings.
_PERSON_USAGE_SQL = """
    SELECT FALSE AS of_token, FALSE AS reserved, FALSE AS today,
        s.input + s.output AS tokens, s.cost AS money, s.answers AS turns, s.seconds AS seconds
    FROM chat_personsum s
    WHERE s.person_id = %(person)s AND s.day_id >= %(first)s AND s.day_id <= (SELECT day FROM summed)
    UNION ALL
    SELECT FALSE, FALSE, c.created >= %(today)s, c.input + c.output, c.cost,
        (c.number = 1 AND c.purpose = ANY(%(answers)s))::int, c.seconds
    FROM chat_modelcall c
    WHERE c.person_id = %(person)s AND c.created >= (
        SELECT GREATEST(%(since)s, ((max(day) + 1)::timestamp AT TIME ZONE %(zone)s)) FROM summed
    )
    UNION ALL
    SELECT FALSE, TRUE, TRUE, t.reserved_tokens, t.reserved_cost, 1, 0
    FROM chat_turn t JOIN chat_conversation c ON c.id = t.conversation_id
    WHERE c.owner_id = %(person)s AND t.status IN ('queued', 'running')
    UNION ALL
    SELECT FALSE, TRUE, TRUE, GREATEST(0, r.tokens - COALESCE(used.tokens, 0)),
        GREATEST(0, r.cost - COALESCE(used.cost, 0)), 0, 0
    FROM chat_reading r CROSS JOIN LATERAL (
        SELECT sum(m.input + m.output) AS tokens, sum(m.cost) AS cost FROM chat_modelcall m WHERE m.reading_id = r.id
    ) used
    WHERE r.person_id = %(person)s AND r.status IN ('queued', 'running', 'checking')
"""
_PROGRAM_USAGE_SQL = """
    SELECT TRUE AS of_token, FALSE AS reserved, c.created >= %(today)s AS today,
        c.input + c.output AS tokens, c.cost AS money, (c.number = 1 AND c.purpose = ANY(%(answers)s))::int AS turns,
        c.seconds AS seconds
    FROM chat_modelcall c WHERE c.token_id = %(token)s AND c.created >= %(since)s
    UNION ALL
    SELECT TRUE, TRUE, TRUE, t.reserved_tokens, t.reserved_cost, 1, 0
    FROM chat_turn t JOIN chat_conversation c ON c.id = t.conversation_id
    WHERE c.owner_id = %(person)s AND t.token_id = %(token)s AND t.status IN ('queued', 'running')
    UNION ALL
    SELECT TRUE, TRUE, TRUE, GREATEST(0, r.tokens - COALESCE(used.tokens, 0)),
        GREATEST(0, r.cost - COALESCE(used.cost, 0)), 0, 0
    FROM chat_reading r CROSS JOIN LATERAL (
        SELECT sum(m.input + m.output) AS tokens, sum(m.cost) AS cost FROM chat_modelcall m WHERE m.reading_id = r.id
    ) used
    WHERE r.person_id = %(person)s AND r.token_id = %(token)s AND r.status IN ('queued', 'running', 'checking')
"""
_USAGE_SQL = """
WITH summed AS (SELECT max(day) AS day FROM chat_usageday WHERE zone = %(zone)s AND by_person)
SELECT of_token, reserved, today, COALESCE(sum(tokens), 0), COALESCE(sum(money), 0), COALESCE(sum(turns), 0),
    round(COALESCE(sum(seconds), 0) / 60.0, 3)
FROM ({of}) used GROUP BY of_token, reserved, today
"""
# In the order of the columns.
_SUMMED_UNITS = (Limit.Unit.TOKENS, Limit.Unit.MONEY, Limit.Unit.TURNS, Limit.Unit.SPEECH)
_TURN_UNITS = (Limit.Unit.TOKENS, Limit.Unit.MONEY, Limit.Unit.TURNS)  # units that turns use up
_SPEECH_UNITS = (Limit.Unit.TOKENS, Limit.Unit.MONEY, Limit.Unit.SPEECH)  # units that calls of speech servers use up


class LimitJson(TypedDict):
    """State of a limit for programs. Numbers are exact, as text. `resets` is an ISO time, None if it never resets."""

    unit: str
    per: str | None
    amount: str
    used: str
    resets: str | None


@dataclass(frozen=True, slots=True)
class LimitState:
    """State of a limit: the used part and the part reserved for live turns, both in the unit of the limit."""

    limit: Limit
    used: Decimal
    reserved: Decimal
    resets: datetime

    @property
    def share(self) -> Decimal:
        """Return the used percentage."""
        return 100 * self.used / self.limit.amount if self.limit.amount else Decimal(100)

    def reached(self, turns: int = 0) -> bool:
        """Return whether the limit blocks further work. A limit of turns blocks if it has no room for `turns` more."""
        occupied = self.used + self.reserved
        if self.limit.unit == Limit.Unit.TURNS:
            return occupied + max(1, turns) > self.limit.amount
        return occupied >= self.limit.amount

    def allows(self, prompt: "PlannedPrompt") -> bool:
        """Return whether the rest of the limit is enough for a prompt."""
        needed = {Limit.Unit.TOKENS: Decimal(prompt.tokens), Limit.Unit.MONEY: prompt.cost or Decimal(0)}
        unit = Limit.Unit(self.limit.unit)
        return unit not in needed or self.used + self.reserved + needed[unit] <= self.limit.amount

    def as_json(self) -> LimitJson:
        return {
            "unit": self.limit.unit,
            "per": self.limit.per,
            "amount": f"{self.limit.amount.normalize():f}",
            "used": f"{self.used.normalize():f}",
            "resets": self.resets.isoformat(),
        }


def get_limits(
    person: UUID, token: UUID | None, version: UUID | None, units: Collection[str] = _TURN_UNITS
) -> list[Limit]:
    """Return the limits of the user, and of the API token if there is one, that work of these units uses up."""
    limits = [*limits_of_person(person, version), *limits_of_token(token, version)]
    return [each for each in limits if each.unit in units]


def load_states(person: UUID, limits: Sequence[Limit]) -> list[LimitState]:
    """Return the state of each limit, in the same order. One query; none without limits."""
    if not limits:
        return []
    now = timezone.now()
    token = next((each.token_id for each in limits if each.token_id is not None), None)
    of_person = any(each.token_id is None for each in limits)
    parts = [_PERSON_USAGE_SQL] if of_person else []
    statement = _USAGE_SQL.replace(
        "{of}", " UNION ALL ".join([*parts, _PROGRAM_USAGE_SQL] if token is not None else parts)
    )
    monthly = any(each.per == Limit.Per.MONTH for each in limits)
    today, _tomorrow = period(Limit.Per.DAY, now)
    since = period(Limit.Per.MONTH, now)[0] if monthly else today
    parameters = {
        "person": person,
        "token": token,
        "answers": list(_ANSWERS),
        "today": today,
        "since": since,
        "first": since.date(),
        "zone": str(timezone.get_default_timezone()),
    }
    with executed(statement, parameters) as cursor:
        sums = {tuple(row[:3]): row[3:] for row in cursor.fetchall()}
    return [_state(each, sums, now) for each in limits]


def _state(limit: Limit, sums: Mapping[tuple[bool, ...], Sequence[Decimal]], now: datetime) -> LimitState:
    """Return the state of a limit. `sums`: the rows of `_USAGE_SQL`, by (of_token, reserved, today)."""
    column = _SUMMED_UNITS.index(Limit.Unit(limit.unit))
    of_token = limit.token_id is not None

    def total(*, reserved: bool, today: bool) -> Decimal:
        kind = (of_token, reserved, today)
        return Decimal(sums[kind][column]) if kind in sums else Decimal(0)

    used = total(reserved=False, today=True)
    if limit.per == Limit.Per.MONTH:
        used += total(reserved=False, today=False)
    return LimitState(limit, used, total(reserved=True, today=True), limit.period(now)[1])


def require_within_limits(person: UUID, token: UUID | None, version: UUID | None, turns: int = 0) -> list[LimitState]:
    """Check that the limits allow `turns` more turns. Return the states of the limits, for reservations.

    Raises `limit_reached` (429). Makes no query without limits. The caller holds the lock of the user
    (`chat.models.conversation_state.lock`).
    """
    limit_states = load_states(person, get_limits(person, token, version))
    for state in limit_states:
        if state.reached(turns):
            raise _refusal(state)
    return limit_states


class PlannedPrompt(NamedTuple):
    """Least usage of a turn's prompt, in tokens and US dollars. `cost` is None without a price."""

    tokens: int
    cost: Decimal | None


def require_prompt_within(limits: Sequence[LimitState], prompt: PlannedPrompt) -> None:
    """Raise `limit_reached` (429) if the prompt alone needs more than the rest of a limit."""
    for state in limits:
        if not state.allows(prompt):
            raise _refusal(state, prompt)


def require_not_used_up(person: UUID, token: UUID | None) -> None:
    """Raise `limit_reached` (429) if tokens or money are used up. For background work.

    Reservations and limits of turns do not stop such work.
    """
    for state in load_states(person, get_limits(person, token, None)):
        if state.limit.unit != Limit.Unit.TURNS and state.used >= state.limit.amount:
            raise _refusal(state)


def require_available(person: UUID, token: UUID | None) -> None:
    """Raise `limit_reached` (429) if tokens or money are used up or reserved. For calls outside of turns.

    The caller holds the lock of the user (`chat.models.conversation_state.join_line`).
    """
    for state in load_states(person, get_limits(person, token, None)):
        if state.limit.unit != Limit.Unit.TURNS and state.reached():
            raise _refusal(state)


def require_speech_available(person: UUID, token: UUID | None) -> None:
    """Raise `limit_reached` (429) if tokens, money or minutes of speech are used up. As `require_available`."""
    for state in load_states(person, get_limits(person, token, None, _SPEECH_UNITS)):
        if state.reached():
            raise _refusal(state)


def _refusal(state: LimitState, prompt: PlannedPrompt | None = None) -> ProductError:
    limit = state.limit
    now = timezone.now()
    only_reserved = state.used < limit.amount
    if prompt is not None:
        only_reserved = replace(state, reserved=Decimal(0)).allows(prompt)
    sentence = _sentence(state, only_reserved=only_reserved)
    if prompt is not None and not only_reserved:
        sentence = Sentence(
            "This message needs more than is left of your limit. Leave out files or earlier messages, or wait "
            "until the limit resets at {resets}. Your text is kept.",
            resets=f"{state.resets:%Y-%m-%d %H:%M %Z}",
        )
    return ProductError(
        "limit_reached",
        sentence,
        status=429,
        retry_after=RETRY_AFTER if only_reserved else max(1, ceil((state.resets - now).total_seconds())),
        limit={"for": "token" if limit.token_id is not None else "user", **state.as_json()},
    )


def _sentence(state: LimitState, *, only_reserved: bool) -> Sentence:
    if only_reserved:
        return Sentence(
            "The answers in progress may use up your limit. Wait until they are complete, then send. Your text is kept."
        )
    limit = state.limit
    resets = f"{state.resets:%Y-%m-%d %H:%M %Z}"
    most = Decimal(f"{limit.amount.normalize():f}")
    match limit.unit, limit.per:
        case Limit.Unit.TOKENS, Limit.Per.DAY:
            return Sentence(
                "You have reached the limit of {most} tokens (pieces of words) a day. It resets at {resets}. "
                "Your text is kept.",
                most=most,
                resets=resets,
            )
        case Limit.Unit.TOKENS, _:
            return Sentence(
                "You have reached the limit of {most} tokens (pieces of words) a month. It resets at "
                "{resets}. Your text is kept.",
                most=most,
                resets=resets,
            )
        case Limit.Unit.MONEY, Limit.Per.DAY:
            return Sentence(
                "You have reached the limit of ${most} a day. It resets at {resets}. Your text is kept.",
                most=most,
                resets=resets,
            )
        case Limit.Unit.MONEY, _:
            return Sentence(
                "You have reached the limit of ${most} a month. It resets at {resets}. Your text is kept.",
                most=most,
                resets=resets,
            )
        case Limit.Unit.SPEECH, Limit.Per.DAY:
            return Sentence(
                "You have reached the limit of {most} minutes of speech a day. It resets at {resets}.",
                most=most,
                resets=resets,
            )
        case Limit.Unit.SPEECH, _:
            return Sentence(
                "You have reached the limit of {most} minutes of speech a month. It resets at {resets}.",
                most=most,
                resets=resets,
            )
        case _, Limit.Per.DAY:
            return Sentence(
                "You have reached the limit of {most} turns a day. It resets at {resets}. Your text is kept.",
                most=most,
                resets=resets,
            )
    return Sentence(
        "You have reached the limit of {most} turns a month. It resets at {resets}. Your text is kept.",
        most=most,
        resets=resets,
    )


def max_live_turns(person: UUID, version: UUID | None = None) -> int | None:
    """Return how many live turns a user may have: the smaller of the setting and the limit. None means no limit."""
    limit = standing_limit(person, Limit.Unit.LIVE_TURNS, version)
    bounds = [settings.LIVE_TURNS or None, None if limit is None else int(limit)]
    return min((each for each in bounds if each is not None), default=None)


def get_warning_limit(person: UUID) -> LimitJson | None:
    """Return the limit with the largest used share, if that share is large enough to warn before a send."""
    nearest = max(load_states(person, get_limits(person, None, None)), key=lambda state: state.share, default=None)
    return nearest.as_json() if nearest is not None and nearest.share >= WARN_FROM else None


def load_all_states(person: User, token: UUID | None = None) -> list[LimitJson]:
    """Return the state of every limit of a user, and of the limits of the API token."""
    at_once: list[LimitJson] = []
    for unit, used in ((Limit.Unit.STORAGE, stored_bytes), (Limit.Unit.LIVE_TURNS, _count_live_turns)):
        most = standing_limit(person.pk, unit)
        if most is not None:
            at_once.append(
                {
                    "unit": unit.value,
                    "per": None,
                    "amount": f"{most.normalize():f}",
                    "used": str(used(person)),
                    "resets": None,
                }
            )
    used_up = load_states(person.pk, get_limits(person.pk, token, None, Limit.USED_UP))
    return [*(state.as_json() for state in used_up), *at_once]


def _count_live_turns(person: User) -> int:
    return Turn.objects.live().filter(conversation__owner=person).count()


class LimitWords(TypedDict):
    """State of a limit for pages, in the language of the reader. `what`: the kind of the limit."""

    what: str
    used: str
    most: str
    share: str


def describe_limit(state: LimitJson) -> LimitWords:
    """Return the state of a limit in words."""
    kinds: dict[tuple[Limit.Unit, str | None], str] = {
        (Limit.Unit.TOKENS, Limit.Per.DAY): _("Tokens a day"),
        (Limit.Unit.TOKENS, Limit.Per.MONTH): _("Tokens a month"),
        (Limit.Unit.MONEY, Limit.Per.DAY): _("Money a day"),
        (Limit.Unit.MONEY, Limit.Per.MONTH): _("Money a month"),
        (Limit.Unit.TURNS, Limit.Per.DAY): _("Turns a day"),
        (Limit.Unit.TURNS, Limit.Per.MONTH): _("Turns a month"),
        (Limit.Unit.SPEECH, Limit.Per.DAY): _("Minutes of speech a day"),
        (Limit.Unit.SPEECH, Limit.Per.MONTH): _("Minutes of speech a month"),
        (Limit.Unit.STORAGE, None): _("Stored"),
        (Limit.Unit.LIVE_TURNS, None): _("Turns at once"),
    }
    unit = Limit.Unit(state["unit"])
    used = Decimal(state["used"])
    most = Decimal(state["amount"])
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
