"""Manage each user's own queue: a limited number of a user's turns runs at once, and the others wait.

The rows are authoritative: a turn may run when it is among the oldest live turns of its person. Only then does it enter
the common queue. So one person's many turns do not delay other people, and waiting turns survive any crash.
"""

from uuid import UUID

from chat.ledger.limits import max_live_turns
from chat.models import Turn
from core.background import TURNS, UNCLAIMED_AFTER, stale_rows


def find_startable(person: UUID) -> list[UUID]:
    """Return a person's turns that may run now and are not claimed by a worker."""
    oldest = Turn.objects.live().filter(conversation__owner=person).order_by("pk").values_list("pk", "status")
    return [pk for pk, status in oldest[: max_live_turns(person)] if status == Turn.Status.QUEUED]


def queue_next(conversation_id: UUID) -> None:
    """Queue the owner's next turn after one has ended. The sweeper finds turns that this misses."""
    person = Turn.objects.filter(conversation=conversation_id).values_list("conversation__owner", flat=True).first()
    for turn in find_startable(person) if person is not None else ():
        TURNS.put(turn)


def find_unclaimed() -> list[UUID]:
    """Return turns that may run, but that no worker has claimed for a while."""
    waiting = stale_rows(Turn.objects.filter(status=Turn.Status.QUEUED), UNCLAIMED_AFTER)
    people = waiting.order_by().values_list("conversation__owner", flat=True).distinct()
    return [turn for person in people for turn in find_startable(person)]
