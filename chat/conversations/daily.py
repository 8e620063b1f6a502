"""Messages and summaries of one day in the person's own time zone (WENDY's Daily_chat and Daily_summary)."""

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from uuid import UUID

from django.db.models import Q, QuerySet

from accounts.models import User
from chat.models import Conversation, Message, Summary


def day_bounds(user: User, day: date) -> tuple[datetime, datetime]:
    """Return the start of the day and the start of the next day. A day has 23 to 25 hours when clocks change."""
    zone = user.zone
    begins = datetime.combine(day, time(), zone)
    try:
        return begins, datetime.combine(day + timedelta(days=1), time(), zone)
    except OverflowError:  # the last day that `date` can represent
        return begins, datetime.max.replace(tzinfo=zone)


def find_messages(user: User, day: date) -> "QuerySet[Message]":
    begins, ends = day_bounds(user, day)
    rows = Message.objects.visible_to(user).filter(created__gte=begins, created__lt=ends)
    return rows.filter(conversation__origin=Conversation.Origin.WORKSPACE).select_related("model", "conversation")


def next_rows(rows: "QuerySet[Message]", after: UUID | None, count: int) -> list[Message]:
    """Return the next `count` rows, oldest first. They start after the message `after`, or at the first row."""
    if after is not None:
        last = rows.filter(pk=after).first()
        rows = rows.filter(Q(created__gt=last.created) | Q(created=last.created, pk__gt=after)) if last else rows.none()
    return list(rows.order_by("created", "pk")[:count])


def find_summaries(user: User, day: date) -> "QuerySet[Summary]":
    """Return the summaries that were written on that day, in force or not."""
    begins, ends = day_bounds(user, day)
    rows = Summary.objects.visible_to(user).filter(created__gte=begins, created__lt=ends)
    return rows.exclude(conversation__origin=Conversation.Origin.TEMPORARY)


def join_as_json_list(entries: Iterator[str]) -> Iterator[str]:
    """Yield the JSON texts as one JSON list, one entry per line, without holding all of them in memory."""
    separator = "["
    for entry in entries:
        yield f"{separator}\n{entry}"
        separator = ","
    yield "[]\n" if separator == "[" else "\n]\n"
