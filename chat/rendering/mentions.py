"""What messages mention with @: kept per day, as links, and offered while somebody writes."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from django.db.models import BooleanField, ExpressionWrapper, Q
from django.urls import reverse
from markdown_it.rules_inline import StateInline

from accounts.models import User
from chat.models import Mention
from files.models import File
from projects.models import codes
from projects.models.task import Task
from projects.planner.queries import tasks_of, today

_AROUND = codes.MAX_LENGTH + 2  # its @ and the character behind it
OFFERED_TASKS, OFFERED_FILES = 8, 4


def remember(*, user: User, text: str, at: datetime) -> None:
    """Keeps, for the user's day at that moment, what exists of what a message mentions."""
    found = codes.mentions(text)
    if not found:
        return
    known = Task.objects.visible_to(user).filter(code__in=tasks_of(found)).values_list("code", flat=True)
    day = today(user, at)
    Mention.objects.bulk_create((Mention(user=user, day=day, code=code) for code in known), ignore_conflicts=True)


def href(code: str) -> str:
    return reverse("chat:task_by_code", args=[code])


def rule(state: StateInline, silent: bool) -> bool:
    """A rule of the Markdown parser: a mention becomes a link, unless it stands in one."""
    if state.src[state.pos] != "@" or state.linkLevel:
        return False
    begin = max(0, state.pos - 1)
    start, end, code = next(codes.places(state.src[begin : state.pos + _AROUND]), (-1, 0, ""))
    if begin + start != state.pos:
        return False
    if not silent:
        state.push("link_open", "a", 1).attrs = {"href": href(code), "class": "mention"}
        state.push("text", "", 0).content = state.src[state.pos : begin + end]
        state.push("link_close", "a", -1)
    state.pos = begin + end
    return True


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """A plain text cut at its mentions: each piece with the code that it mentions, empty for what stands between."""
    done = 0
    for start, end, code in codes.places(text):
        yield text[done:start], ""
        yield text[start:end], code
        done = end
    yield text[done:], ""


class Offer(NamedTuple):
    tasks: list[Task]
    files: list[File]


def offer(*, user: User, typed: str) -> Offer:
    """What may be meant by `typed` behind an @: tasks by code or title, today's first, and files by name."""
    typed = typed.strip()[:100]
    here = Q(level=Task.Level.TASK, horizon=Task.Horizon.DAY, date=today(user))
    rows = Task.objects.visible_to(user).filter(Q(code__istartswith=typed) | Q(title__icontains=typed))
    if "." not in typed:
        rows = rows.exclude(level=Task.Level.ITEM)
    first = ExpressionWrapper(here, output_field=BooleanField())
    tasks = rows.annotate(first=first).order_by("-first", "-date", "position", "code")
    files = File.objects.visible_to(user).filter(name__icontains=typed, status=File.Status.READY)
    return Offer(list(tasks[:OFFERED_TASKS]), list(files.order_by("-created", "-id")[:OFFERED_FILES]))
