"""A day's page: what was said, loaded as one reads on, and what was summarised."""

from datetime import date, timedelta
from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET

from accounts.access.sessions import SignedInRequest as Request
from chat.conversations.daily import days as daily
from core.lookups import identifier

PAGE = 40


@require_GET
def today(request: Request) -> HttpResponse:
    return redirect("chat:day", timezone.localdate(timezone=request.user.zone))


@require_GET
def day(request: Request, day: date) -> HttpResponse:
    """The page, or with `?after=` a message the entries that follow it."""
    after = request.GET.get("after")
    found = daily.following(
        daily.messages(request.user, day), identifier(after, "message") if after else None, PAGE + 1
    )
    context: dict[str, Any] = {"day": day, "messages": found[:PAGE], "more": len(found) > PAGE}
    if request.htmx:
        return render(request, "chat/_day_messages.html", context)
    context |= {
        "summaries": daily.summaries(request.user, day).select_related("conversation").order_by("id"),
        "before": day - timedelta(days=1) if day > date.min else None,
        "next_day": day + timedelta(days=1) if day < date.max else None,
        "is_today": day == timezone.localdate(timezone=request.user.zone),
    }
    return render(request, "chat/day.html", context)
