"""“My usage”: what a month of one's own model calls took and cost, as a page and as a table to take along."""

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from accounts.access.sessions import SignedInRequest as Request
from chat.ledger import limits
from chat.ledger.models import ModelCall
from chat.ledger.services import as_csv, between, in_words, record_export
from chat.ledger.sums import Used

SHOWN = 50  # rows of a table; the API has all
TABLES = {
    "day": gettext_lazy("Day"),
    "model": gettext_lazy("Model"),
    "conversation": gettext_lazy("Conversation"),
    "project": gettext_lazy("Project"),
    "token": gettext_lazy("API token"),
}


@require_GET
def my_usage(request: Request) -> HttpResponse:
    first = _first(request)
    today = timezone.localdate(timezone=request.user.zone)
    used = Used(first, _last(first), request.user.zone, {"person_id": request.user.pk})
    tables = [{"kind": kind, "title": title, "rows": used.lines(kind, SHOWN)} for kind, title in TABLES.items()]
    total = used.total()
    shown = [_shown(state) for state in limits.all_states(request.user)] if today < _next(first) else []
    context = {
        "section": "settings",
        "place": "usage",
        "month": first,
        "before": first - timedelta(days=1) if first > date(2000, 1, 1) else None,
        "after": _next(first) if _next(first) <= today else None,
        "total": in_words(total) if total.calls else "",
        "limits": shown,
        "used_up": any(limit["used_up"] for limit in shown),
        "tables": tables,
    }

    return render(request, "chat/usage.html", context)


def _shown(state: Mapping[str, Any]) -> dict[str, Any]:
    resets = state["resets"]
    used_up = state["unit"] in ("tokens", "money") and Decimal(state["used"]) >= Decimal(state["amount"])
    return {**limits.in_words(state), "used_up": used_up, "resets": datetime.fromisoformat(resets) if resets else None}


@require_GET
def my_usage_csv(request: Request) -> StreamingHttpResponse:
    first = _first(request)
    last = _last(first)
    record_export(user=request.user, first=first, last=last)
    rows = between(ModelCall.objects.visible_to(request.user), request.user.zone, first, last)
    return as_csv(rows, f"usage-{first:%Y-%m}.csv")


def _first(request: Request) -> date:
    """The first day of the month that the address names, else of the present one."""
    try:
        return date.fromisoformat(f"{request.GET.get('month', '')}-01")
    except ValueError:
        return timezone.localdate(timezone=request.user.zone).replace(day=1)


def _last(first: date) -> date:
    return _next(first) - timedelta(days=1)


def _next(first: date) -> date:
    """The first day of the month after, of the last that there can be that month itself."""
    return (first + timedelta(days=32)).replace(day=1) if first < date(9990, 1, 1) else first
