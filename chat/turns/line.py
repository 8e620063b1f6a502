"""A person's own line: of their turns so many are written at once as may be, and the others wait for these.

The rows are the truth: a turn may be written when it is among the oldest live ones of its person, and only then it gets
into the queue of all. So nobody's turns wait for more than that of another person, and what waits survives everything.
"""

from uuid import UUID

from chat.ledger.limits import turns_at_once
from chat.models import Turn
from core.background import TURNS, UNCLAIMED_AFTER, stale_rows


def first_in_line(person: UUID) -> list[UUID]:
    """Their turns that no worker has claimed and that may be written now."""
    oldest = Turn.objects.live().filter(conversation__owner=person).order_by("pk").values_list("pk", "status")
    return [pk for pk, status in oldest[: turns_at_once(person)] if status == Turn.Status.QUEUED]


def move_up(conversation_id: UUID) -> None:
    """Once a turn of its person has ended: the next one gets its place. What this misses the sweeper finds."""
    person = Turn.objects.filter(conversation=conversation_id).values_list("conversation__owner", flat=True).first()
    for turn in first_in_line(person) if person is not None else ():
        TURNS.put(turn)


def left_behind() -> list[UUID]:
    """Those that may be written and that no worker has claimed for a while."""
    waiting = stale_rows(Turn.objects.filter(status=Turn.Status.QUEUED), UNCLAIMED_AFTER)
    people = waiting.order_by().values_list("conversation__owner", flat=True).distinct()
    return [turn for person in people for turn in first_in_line(person)]
