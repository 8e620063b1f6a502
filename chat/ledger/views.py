"""“My usage”: tokens and cost of the user's own model calls in a month, as a page and as a CSV file."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from accounts.access.sessions import SignedInRequest as Request
from chat.ledger import limits
from chat.ledger.chart import usage_chart
from chat.ledger.models import ModelCall
from chat.ledger.services import calls_between, csv_response, describe_usage, record_export
from chat.ledger.sums import UsageReport

ROWS_PER_TABLE = 50  # rows in a table; the API returns all
TABLES = {
    "day": gettext_lazy("Day"),
    "model": gettext_lazy("Model"),
    "conversation": gettext_lazy("Conversation"),
    "project": gettext_lazy("Project"),
    "token": gettext_lazy("API token"),
}


@require_GET
def my_usage(request: Request) -> HttpResponse:
    first = _first_day(request)
    today = timezone.localdate(timezone=request.user.zone)
    usage = UsageReport(first, _last_day(first), request.user.zone, {"person_id": request.user.pk})
    tables = [
        {"kind": kind, "title": title, "rows": usage.lines(kind, ROWS_PER_TABLE)} for kind, title in TABLES.items()
    ]
    total = usage.total()
    shown = (
        [_shown_limit(state) for state in limits.load_all_states(request.user)]
        if today < _next_first_day(first)
        else []
    )
    context = {
        "section": "settings",
        "place": "usage",
        "month": first,
        "before": first - timedelta(days=1) if first > date(2000, 1, 1) else None,
        "after": _next_first_day(first) if _next_first_day(first) <= today else None,
        "total": describe_usage(total) if total.calls else "",
        "limits": shown,
        "used_up": any(limit.used_up for limit in shown),
        "tables": tables,
        "chart": usage_chart(first, usage.by("day_id")),
    }

    return render(request, "chat/usage.html", context)


@dataclass(frozen=True, slots=True)
class ShownLimit:
    """A limit on the page, in the reader's language. `used_up`: no model call is made until the limit resets."""

    what: str
    used: str
    most: str
    share: str
    used_up: bool
    resets: datetime | None


def _shown_limit(state: limits.LimitJson) -> ShownLimit:
    words = limits.describe_limit(state)
    return ShownLimit(
        what=words["what"],
        used=words["used"],
        most=words["most"],
        share=words["share"],
        used_up=state["unit"] in ("tokens", "money") and Decimal(state["used"]) >= Decimal(state["amount"]),
        resets=datetime.fromisoformat(state["resets"]) if state["resets"] else None,
    )


@require_GET
def my_usage_csv(request: Request) -> StreamingHttpResponse:
    first = _first_day(request)
    last = _last_day(first)
    record_export(user=request.user, first=first, last=last)
    rows = calls_between(ModelCall.objects.visible_to(request.user), request.user.zone, first, last)
    return csv_response(rows, f"usage-{first:%Y-%m}.csv")


def _first_day(request: Request) -> date:
    """Return the first day of the month in the address, or of the current month without one."""
    try:
        return date.fromisoformat(f"{request.GET.get('month', '')}-01")
    except ValueError:
        return timezone.localdate(timezone=request.user.zone).replace(day=1)


def _last_day(first: date) -> date:
    return _next_first_day(first) - timedelta(days=1)


def _next_first_day(first: date) -> date:
    """Return the first day of the next month, or `first` itself near the last date that Python can hold."""
    return (first + timedelta(days=32)).replace(day=1) if first < date(9990, 1, 1) else first
