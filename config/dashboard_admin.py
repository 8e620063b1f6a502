"""The start page of the admin: usage, costs, failures, running work, and the findings of the doctor.

An administrator sees the parts whose rows they may view, and the numbers link to these rows.
"""

import json
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import django
from django.conf import settings
from django.contrib import admin
from django.core.cache import cache
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.db.models import Count, Sum
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import pgettext
from redis.exceptions import RedisError

from chat.ledger import overview
from chat.ledger.models import ModelCall
from chat.ledger.overview import Day, Days
from chat.ledger.services import UsageFigures, midnight
from chat.models import Import, Turn
from chat.runs.services import open_runs
from config.management.commands.doctor import findings
from core import background, i18n
from core.admin import acting_user
from core.ids import id_at
from core.permissions import has_right
from files.models import File
from projects.planner.models import Run

CHOICES = (7, 30, 90)  # days
GREY = {"color": "#8b93a1"}  # readable on white and on black
CHART = json.dumps(
    {
        "animation": False,
        "responsive": True,
        "maintainAspectRatio": False,
        "datasets": {"bar": {"maxBarThickness": 14}},
        "plugins": {"legend": {"align": "end", "labels": {"boxHeight": 8, "boxWidth": 8, **GREY}}},
        "scales": {
            "x": {"grid": {"display": False}, "ticks": {"maxTicksLimit": 10, **GREY}},
            "y": {"beginAtZero": True, "grid": {"display": True}, "ticks": {"maxTicksLimit": 5, **GREY}},
        },
    }
)
DOCTOR_SECONDS = 300  # cache lifetime of findings; the checks send requests to providers
DOCTOR_KEY = "admin:doctor"  # the key of the cached findings
COUNT_SECONDS = 60  # cache lifetime of counts over all people or files, which are slow for large numbers


@dataclass(frozen=True, slots=True)
class UsageRow:
    """A row of a table of the top models, groups, personas or people. `url` leads to its calls."""

    name: str
    figures: UsageFigures
    url: str


def dashboard(request: HttpRequest, context: Mapping[str, object]) -> Mapping[str, object]:
    """Return the context of the start page with our parts added. A part that the user may not see is None."""
    days = _days(request)
    user = acting_user(request)
    parts = {
        "usage": _usage(days) if has_right(user, "view", ModelCall) else None,
        "turns": _turns(days) if has_right(user, "view", Turn) else None,
        "runs": _runs() if has_right(user, "view", Run) else None,
        "storage": _storage() if has_right(user, "view", File) else None,
        "health": user.is_superuser,
    }
    return {
        **context,
        **parts,
        "title": i18n.label("Overview"),
        "nothing": not any(parts.values()),
        "days": days.number,
        "choices": CHOICES,
    }


def _days(request: HttpRequest) -> Days:
    days = request.GET.get("days", "")
    return Days(int(days) if days in map(str, CHOICES) else CHOICES[1], timezone.get_default_timezone())


def calls_url(**filters: object) -> str:
    return _list_url("chat_modelcall", filters)


def turns_url(**filters: object) -> str:
    return _list_url("chat_turn", filters)


def _list_url(name: str, filters: Mapping[str, object]) -> str:
    return reverse(f"admin:{name}_changelist", query={name: str(value) for name, value in filters.items()})


def _usage(days: Days) -> Mapping[str, object]:
    rows = overview.by_day(days)
    since = days.since.isoformat()
    total = sum((row.figures for row in rows), UsageFigures())
    return {
        "people": _count(f"people:{days.number}", partial(overview.active_people, days)),
        "total": total,
        "url": calls_url(created__gte=since),
        "days": [(row, _day_url(row.day, days)) for row in reversed(rows)],
        "charts": _charts(rows),
        "chart": CHART,
        "models": _models(days),
        "groups": _groups(days),
        "personas": _personas(days),
        "people_url": reverse("admin_people_who_used_most", query={"days": days.number}),
        "sums_url": reverse("admin:chat_modelcall_sums"),
    }


def _day_url(day: date, days: Days) -> str:
    first = midnight(day, days.zone)
    last = midnight(day + timedelta(days=1), days.zone)
    return calls_url(created__gte=first.isoformat(), created__lt=last.isoformat())


def _models(days: Days) -> list[UsageRow]:
    lines = days.usage.lines("model", overview.ROWS_PER_TABLE)
    return [UsageRow(line.name or "", line.figures, _row_url(days, "model", line.key)) for line in lines]


def _groups(days: Days) -> list[UsageRow]:
    """Return the rows of groups. Return none if all usage counts to one group, which equals the total."""
    lines = days.usage.lines("group", overview.ROWS_PER_TABLE)
    no_group = _("None, or deleted")
    rows = [UsageRow(line.name or no_group, line.figures, _row_url(days, "group", line.key)) for line in lines]
    return rows if len(rows) > 1 else []


def _personas(days: Days) -> list[UsageRow]:
    lines = days.usage.lines("persona", overview.ROWS_PER_TABLE)
    unnamed = {None: _("No persona")}
    return [
        UsageRow(
            line.name or unnamed.get(line.key, _("A private one")),
            line.figures,
            _row_url(days, "persona", line.key),
        )
        for line in lines
    ]


def _row_url(days: Days, name: str, pk: UUID | None) -> str:
    """Return the URL of the calls that refer to this row. None means calls without a row, or with a deleted one."""
    path, value = (f"{name}__id__exact", pk) if pk is not None else (f"{name}__isnull", "True")
    return _list_url("chat_modelcall", {"created__gte": days.since.isoformat(), path: value})


def _charts(rows: Sequence[Day]) -> list[tuple[str, str]]:
    """Return the titles and Chart.js data of the charts. The table of days has the same numbers."""
    charts: dict[str, dict[str, list[float]]] = {
        _("Answers and people by day"): {
            _("Answers"): [row.figures.answers for row in rows],
            _("People"): [row.people for row in rows],
        },
        _("Tokens by day"): {
            _("Read"): [row.figures.input for row in rows],
            _("Written"): [row.figures.output for row in rows],
        },
        _("US dollars by day"): {_("US dollars"): [float(row.figures.cost or 0) for row in rows]},
    }
    labels = [date_format(row.day, pgettext("date on an axis", "j M")) for row in rows]
    colours = ("var(--color-primary-600)", "var(--color-base-400)")
    return [
        (
            title,
            json.dumps(
                {
                    "labels": labels,
                    "datasets": [
                        {"label": label, "data": values, "backgroundColor": colour}
                        for (label, values), colour in zip(series.items(), colours, strict=False)
                    ],
                }
            ),
        )
        for title, series in charts.items()
    ]


def _turns(days: Days) -> Mapping[str, object]:
    live = overview.live_turns()
    since = id_at(days.since)
    first, stops = overview.waits(days)
    waited = (timezone.now() - live.oldest).total_seconds() if live.oldest is not None else None
    return {
        "live": live,
        "newest": overview.NEWEST,
        "waited": waited,
        "queue": _queue(),
        "queued_url": turns_url(status__exact=Turn.Status.QUEUED),
        "running_url": turns_url(status__exact=Turn.Status.RUNNING),
        "asking_url": turns_url(approval="waiting"),
        "failures": [(failure, _failure_url(failure, since)) for failure in overview.failures(days)],
        "failures_url": turns_url(status__in=",".join(Turn.BROKEN), id__gte=since),
        "first": [(row, _first_token_url(row.model_id, since)) for row in first],
        "stops": stops,
        "stops_url": turns_url(stop_requested__exact=1, id__gte=since),
    }


def _first_token_url(model_id: UUID | None, since: UUID) -> str:
    return _list_url("chat_turn", {"id__gte": since, "first_token_ms__isnull": False, **_model_filter(model_id)})


def _failure_url(failure: overview.Failure, since: UUID) -> str:
    filters = {"status__in": ",".join(Turn.BROKEN), "error": failure.code, "id__gte": since}
    return _list_url("chat_turn", {**filters, **_model_filter(failure.model_id)})


def _model_filter(model_id: UUID | None) -> Mapping[str, object]:
    return {"model__id__exact": model_id} if model_id is not None else {"model__isnull": "True"}


def _queue() -> Mapping[str, object] | None:
    """Return the state of the queues, None while Redis is unavailable."""
    try:
        return {"length": background.TURNS.length(), "missing": background.missing_queues()}
    except (RedisError, OSError):
        return None


def _runs() -> list[tuple[Any, int, str]]:
    """Return the label, the number of runs, and the URL of their list for each open status."""
    numbers = open_runs()
    return [
        (Run.Status(status).label, numbers.get(status, 0), _list_url("chat_run", {"status__exact": status}))
        for status in Run.OPEN
    ]


def _count(name: str, count: Callable[[], Any]) -> Any:
    return _cached(f"admin:{name}", count, COUNT_SECONDS)


def _cached(key: str, compute: Callable[[], Any], seconds: int) -> Any:
    """Return a result that is at most `seconds` old. Computes it without the cache while Redis is unavailable."""
    try:
        return cache.get_or_set(key, compute, seconds)
    except (RedisError, OSError):
        return compute()


def _storage() -> Mapping[str, object]:
    files = _count("files", lambda: File.objects.aggregate(count=Count("pk"), size=Sum("size", default=0)))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        database = cursor.fetchone()[0]
    try:
        free = shutil.disk_usage(settings.MEDIA_ROOT).free
    except OSError:
        free = None
    return {
        **files,
        "imports": Import.objects.aggregate(size=Sum("size", default=0))["size"],
        "database": database,
        "free": free,
        "url": reverse("admin:files_file_changelist"),
        "imports_url": reverse("admin:chat_import_changelist"),
    }


def people_who_used_most(request: HttpRequest) -> HttpResponse:
    """Return the fragment of the most active people. It is separate, since its sums are slower than the page."""
    if not has_right(acting_user(request), "view", ModelCall):
        raise PermissionDenied
    days = _days(request)
    rows = [
        UsageRow(line.name or "", line.figures, _row_url(days, "person", line.key))
        for line in days.usage.lines("user", overview.ROWS_PER_TABLE)
    ]
    return TemplateResponse(request, "admin/overview/most.html", {"rows": rows})


def doctor(request: HttpRequest) -> HttpResponse:
    """Return the fragment with the findings of `manage.py doctor`. “again” in the query repeats the checks."""
    if not acting_user(request).is_superuser:
        raise PermissionDenied
    if "again" in request.GET:
        with suppress(RedisError, OSError):
            cache.delete(DOCTOR_KEY)
    report = _cached(DOCTOR_KEY, lambda: {"at": timezone.now(), "findings": list(findings())}, DOCTOR_SECONDS)
    wrong = [each for each in report["findings"] if each.state != "ok"]
    context = {
        "at": report["at"],
        "wrong": sorted(wrong, key=lambda each: each.state),
        "fine": [each for each in report["findings"] if each.state == "ok"],
        "versions": {"Python": platform.python_version(), "Django": django.get_version()},
    }
    return TemplateResponse(request, "admin/doctor.html", context)


doctor_page = admin.site.admin_view(doctor)
people_page = admin.site.admin_view(people_who_used_most)
