"""The pages of tasks. Every form posts, and comes back to the page that it was on.

A script asks for the same pages and takes the part that changed out of them, so there is one way for both.
"""

from collections.abc import Callable
from datetime import date
from functools import wraps
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core import signing
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from accounts.access.sessions import SignedInRequest as Request
from core.errors import ProductError
from core.requests import choice, with_row
from core.text import unix_lines
from projects.models import Project
from projects.planner import pages, services
from projects.planner.models.task import Task
from projects.planner.queries import today, visible_task
from projects.planner.quick_add import Period, add_items, add_line
from projects.planner.rules import Actor

SAID = "tasks.said"
SAID_WITHIN = 60  # seconds


@require_http_methods(["GET", "POST"])
def period(request: Request, horizon: str = "day", start: date | None = None) -> HttpResponse:
    """A day, month or year, today if none is named; a POST adds what was typed."""
    on = Period(horizon, start or today(request.user))
    if request.method == "GET":
        return _board(request, on)
    text = request.POST.get("text", "")
    try:
        made = add_line(actor=Actor(request.user), text=text, on=on)
    except ProductError as error:
        if request.htmx:
            return _at_its_place(request, error)
        return _board(request, on, error.status, problem=error, draft=text)
    elsewhere = "" if Period.of(made) == on else _(" It is on another page: %(day)s.") % {"day": _day(made)}
    return _told(request, _("Added %(code)s.") % {"code": made.code} + elsewhere, request.path)


@with_row(visible_task, "GET")
def task(request: Request, found: Task) -> HttpResponse:
    if found.level == Task.Level.ITEM:
        return redirect(reverse("tasks:task", args=[found.parent_id]) + f"#task-{found.pk}")
    context = pages.task_page(request.user, found, _asked(request))
    context |= pages.history(request.user, found, request.GET.get("before", ""))
    return render(request, "tasks/task.html", {**_common(request), **context})


def _posted(act: Callable[[Request, Actor, Task], str]) -> Callable[[Request, UUID], HttpResponseBase]:
    """The view of a form: does it, says so on the page it came from, or says at the form why not.

    `act` changes the row and returns what it did, in a sentence with the place `%(code)s`.
    """

    @with_row(visible_task)
    @wraps(act)
    def view(request: Request, row: Task) -> HttpResponse:
        code = row.code
        try:
            said = act(request, Actor(request.user), row)
        except ProductError as error:
            if request.htmx:
                return _at_its_place(request, error)
            return _refused(request, row.pk, error)
        return _told(request, said % {"code": code}, _back(request, row))

    return view


@_posted
def save(request: Request, actor: Actor, row: Task) -> str:
    """Title, notes, whose it is, status, project, parent and breakpoint, as far as the form has them."""
    services.update(actor=actor, task=row, fields=_fields(request, row))
    return _("%(code)s is saved.")


@_posted
def status(request: Request, actor: Actor, row: Task) -> str:
    row = services.set_status(actor=actor, task=row, status=request.POST.get("status", ""))
    return _("%(code)s:") + f" {row.get_status_display()}."


@_posted
def order(request: Request, actor: Actor, row: Task) -> str:
    """`after`: the id of the one to stand behind, empty to be the first."""
    after = request.POST.get("after", "")
    row = services.reorder(actor=actor, task=row, after=visible_task(actor.user, after) if after else None)
    return _("%(code)s is now in place") + f" {row.position + 1}."


@_posted
def move(request: Request, actor: Actor, row: Task) -> str:
    new = services.move(actor=actor, task=row, day=_moved_day(request.POST.get("day", "")))
    return _("%(code)s goes on as") + f" {new.code}, {_day(new)}."


@_posted
def items(request: Request, actor: Actor, row: Task) -> str:
    made = add_items(actor=actor, task=row, text=request.POST.get("items", ""))
    return _("Added to the checklist of %(code)s:") + " " + ", ".join(item.code[len(row.code) :] for item in made)


@_posted
def clear(request: Request, actor: Actor, row: Task) -> str:
    services.clear_breakpoint(actor=actor, task=row)
    return _("The breakpoint %(code)s is cleared.")


@_posted
def accept(request: Request, actor: Actor, row: Task) -> str:
    services.accept(actor=actor, task=row)
    return _("%(code)s is accepted.")


@_posted
def decline(request: Request, actor: Actor, row: Task) -> str:
    services.decline(actor=actor, task=row)
    return _("%(code)s is declined.")


@_posted
def delete(request: Request, actor: Actor, row: Task) -> str:
    services.delete(actor=actor, task=row)
    return _("%(code)s is deleted.")


def _told(request: Request, said: str, page: str) -> HttpResponse:
    """Back to the page, which says what was done.

    A script's way there carries the sentence, signed: Django keeps its messages in one cookie of the browser, and of
    two requests at the same time, or of one and a page that looks for news, the one would take the other's.
    """
    if not request.htmx:
        messages.success(request, said)
        return redirect(page)
    return redirect(f"{page}{'&' if '?' in page else '?'}{urlencode({'said': signing.dumps(said, salt=SAID)})}")


def _said(request: Request) -> str:
    try:
        return str(signing.loads(request.GET.get("said", ""), salt=SAID, max_age=SAID_WITHIN))
    except signing.BadSignature:
        return ""


def _at_its_place(request: Request, error: ProductError) -> HttpResponse:
    """The sentence goes into the form that was sent, whose text stays."""
    context = {"code": error.code, "detail": error.sentence}
    response = render(request, "ui/_problem.html", context, status=error.status)
    response["HX-Retarget"], response["HX-Reswap"], response["HX-Reselect"] = (
        "find [data-problem]",
        "innerHTML",
        "unset",
    )
    return response


def _refused(request: Request, pk: UUID, error: ProductError) -> HttpResponse:
    """Without scripts: the forms of this row alone, with what was typed into them."""
    row = visible_task(request.user, pk)
    for name in ("title", "notes", "needs"):
        setattr(row, name, request.POST.get(name, getattr(row, name)))
    context = {
        "line": pages.Line(row, editing=True),
        "problem": error,
        "typed": request.POST.get("items", ""),
        "of_its_page": "notes" in request.POST,
        "back": _back(request, row),
    }
    return render(request, "tasks/refused.html", {**_common(request), **context}, status=error.status)


def _board(request: Request, on: Period, status: int = 200, **more: Any) -> HttpResponse:
    context = {**_common(request), **pages.board(request.user, on, _asked(request)), **more}
    return render(request, f"tasks/{on.horizon}.html", context, status=status)


def _common(request: Request) -> dict[str, Any]:
    return {
        "section": "tasks",
        "back": request.path,
        "said": _said(request),
        "archetypes": Task.Archetype.choices,
        "statuses": [choice for choice in Task.Status.choices if choice[0] != Task.Status.MOVED],
    }


def _asked(request: Request) -> pages.Asked:
    return pages.Asked(**{name: request.GET.get(name, "") for name in ("edit", "open")})


def _back(request: Request, row: Task) -> str:
    """The page that the form names, if it is one of these; else that of the row's day, month or year."""
    back = request.POST.get("back", "")
    if back.startswith(reverse("tasks:today")) and url_has_allowed_host_and_scheme(back, allowed_hosts=None):
        return back
    return Period.of(row).address


def _fields(request: Request, row: Task) -> dict[str, Any]:
    given = [name for name in ("title", "notes", "archetype", "status") if name in request.POST]
    # Forms are sent with other line ends than what is stored; that is no change.
    fields: dict[str, Any] = {name: unix_lines(request.POST[name]) for name in given}
    if "project" in request.POST:
        visible = Project.objects.visible_to(request.user)
        fields["project"] = choice(visible, row.project, request.POST["project"], "project")
    if "parent" in request.POST:
        pk = request.POST["parent"]
        fields["parent"] = visible_task(request.user, pk) if pk else None
    if "breakpoint" in request.POST:
        fields["breakpoint"] = request.POST["breakpoint"] == "yes"
        fields["needs"] = request.POST.get("needs", "") if fields["breakpoint"] else ""
    return fields


def _moved_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ProductError("no_day", "Choose the day to move it to, as 2026-11-23.") from error


def _day(row: Task) -> str:
    formats = {"day": "D j F Y", "month": "F Y", "year": "Y"}
    return date_format(row.date, formats[row.horizon])
