"""Pages of tasks. Every form sends a POST, and returns to the page with the form.

Scripts request the same pages and extract the changed part, so browsers with and without scripts use the same views.
"""

from collections.abc import Callable, Mapping
from datetime import date
from functools import wraps
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
from projects.planner.rules import Actor, TaskFields

CONFIRMATION_SALT = "tasks.said"  # the salt of the signature of a confirmation
CONFIRMATION_SECONDS = 60  # age at which a confirmation in an address is ignored


@require_http_methods(["GET", "POST"])
def period(request: Request, horizon: str = "day", start: date | None = None) -> HttpResponse:
    """Show a day, month or year, by default today. A POST adds the typed task."""
    shown_period = Period(horizon, start or today(request.user))
    if request.method == "GET":
        return _board(request, shown_period)
    text = request.POST.get("text", "")
    try:
        added = add_line(actor=Actor(request.user), text=text, on=shown_period)
    except ProductError as error:
        if request.htmx:
            return _show_in_form(request, error)
        return _board(request, shown_period, problem=error, draft=text)
    sentence = _("Added %(code)s.") % {"code": added.code}
    if Period.of(added) != shown_period:
        sentence += _(" Its page is %(day)s.") % {"day": _format_date(added)}
    return _confirm(request, sentence, request.path)


@with_row(visible_task, "GET")
def task(request: Request, row: Task) -> HttpResponse:
    if row.level == Task.Level.ITEM:
        return redirect(reverse("tasks:task", args=[row.parent_id]) + f"#task-{row.pk}")
    context = {
        **_common_context(request),
        **pages.task_page(request.user, row, _open_rows(request)),
        **pages.history(request.user, row, request.GET.get("before", "")),
    }
    return render(request, "tasks/task.html", context)


def _form_view(act: Callable[[Request, Actor, Task], str]) -> Callable[[Request, UUID], HttpResponseBase]:
    """Return a form's view, which shows a confirmation on the page of the form, or the error in the form.

    `act` changes the row, and returns the sentence of the confirmation with the placeholder `%(code)s`.
    """

    @with_row(visible_task)
    @wraps(act)
    def view(request: Request, row: Task) -> HttpResponse:
        code = row.code
        try:
            sentence = act(request, Actor(request.user), row)
        except ProductError as error:
            if request.htmx:
                return _show_in_form(request, error)
            return _show_refusal(request, row.pk, error)
        return _confirm(request, sentence % {"code": code}, _return_address(request, row))

    return view


@_form_view
def save(request: Request, actor: Actor, row: Task) -> str:
    """Save title, notes, archetype, status, project, parent and breakpoint, if the form has them."""
    services.update(actor=actor, task=row, fields=_fields(request, row))
    return _("%(code)s is saved.")


@_form_view
def status(request: Request, actor: Actor, row: Task) -> str:
    row = services.set_status(actor=actor, task=row, status=request.POST.get("status", ""))
    return _("%(code)s:") + f" {row.get_status_display()}."


@_form_view
def order(request: Request, actor: Actor, row: Task) -> str:
    """Move the row after the row with the id `after`; if empty, to the start."""
    after = request.POST.get("after", "")
    row = services.reorder(actor=actor, task=row, after=visible_task(actor.user, after) if after else None)
    return _("%(code)s is now in place") + f" {row.position + 1}."


@_form_view
def move(request: Request, actor: Actor, row: Task) -> str:
    new = services.move(actor=actor, task=row, day=_parse_day(request.POST.get("day", "")))
    return _("%(code)s continues as") + f" {new.code}, {_format_date(new)}."


@_form_view
def items(request: Request, actor: Actor, row: Task) -> str:
    added = add_items(actor=actor, task=row, text=request.POST.get("items", ""))
    return _("Added to the checklist of %(code)s:") + " " + ", ".join(item.code[len(row.code) :] for item in added)


@_form_view
def clear(request: Request, actor: Actor, row: Task) -> str:
    services.clear_breakpoint(actor=actor, task=row)
    return _("The breakpoint %(code)s is cleared.")


@_form_view
def accept(request: Request, actor: Actor, row: Task) -> str:
    services.accept(actor=actor, task=row)
    return _("%(code)s is accepted.")


@_form_view
def decline(request: Request, actor: Actor, row: Task) -> str:
    services.decline(actor=actor, task=row)
    return _("%(code)s is declined.")


@_form_view
def delete(request: Request, actor: Actor, row: Task) -> str:
    services.delete(actor=actor, task=row)
    return _("%(code)s is deleted.")


def _confirm(request: Request, sentence: str, page: str) -> HttpResponse:
    """Return to the page, which shows the sentence.

    For a script the address contains the signed sentence. Django stores messages in one cookie of the browser, so one
    of two concurrent requests would show the message of the other.
    """
    if not request.htmx:
        messages.success(request, sentence)
        return redirect(page)
    signed = urlencode({"said": signing.dumps(sentence, salt=CONFIRMATION_SALT)})
    return redirect(f"{page}{'&' if '?' in page else '?'}{signed}")


def _confirmation(request: Request) -> str:
    try:
        return str(signing.loads(request.GET.get("said", ""), salt=CONFIRMATION_SALT, max_age=CONFIRMATION_SECONDS))
    except signing.BadSignature:
        return ""


def _show_in_form(request: Request, error: ProductError) -> HttpResponse:
    """Return an error's sentence for the form that was sent. The form keeps the typed text."""
    context = {"code": error.code, "detail": error.sentence}
    response = render(request, "ui/_problem.html", context, status=error.status)
    response["HX-Retarget"] = "find [data-problem]"
    response["HX-Reswap"] = "innerHTML"
    response["HX-Reselect"] = "unset"
    return response


def _show_refusal(request: Request, pk: UUID, error: ProductError) -> HttpResponse:
    """Show the forms of a row with the typed text and the error, for browsers without scripts."""
    row = visible_task(request.user, pk)
    row.title = request.POST.get("title", row.title)
    row.notes = request.POST.get("notes", row.notes)
    row.needs = request.POST.get("needs", row.needs)
    context = {
        "line": pages.TaskLine(row, editing=True),
        "problem": error,
        "typed": request.POST.get("items", ""),
        "of_its_page": "notes" in request.POST,
        "back": _return_address(request, row),
    }
    return render(request, "tasks/refused.html", {**_common_context(request), **context}, status=error.status)


def _board(request: Request, on: Period, problem: ProductError | None = None, draft: str = "") -> HttpResponse:
    """Show a day, month or year. `draft`: the typed line that could not be added because of the `problem`."""
    context = {**_common_context(request), **pages.board(request.user, on, _open_rows(request))}
    if problem is not None:
        context |= {"problem": problem, "draft": draft}
    status = problem.status if problem is not None else 200
    return render(request, f"tasks/{on.horizon}.html", context, status=status)


def _common_context(request: Request) -> Mapping[str, object]:
    return {
        "section": "tasks",
        "back": request.path,
        "said": _confirmation(request),
        "archetypes": Task.Archetype.choices,
        "statuses": [choice for choice in Task.Status.choices if choice[0] != Task.Status.MOVED],
    }


def _open_rows(request: Request) -> pages.OpenRows:
    return pages.OpenRows(request.GET.get("edit", ""), request.GET.get("open", ""))


def _return_address(request: Request, row: Task) -> str:
    """Return the address that the form names, if it is a page of tasks; else the address of the row's period."""
    back = request.POST.get("back", "")
    if back.startswith(reverse("tasks:today")) and url_has_allowed_host_and_scheme(back, allowed_hosts=None):
        return back
    return Period.of(row).address


def _fields(request: Request, row: Task) -> TaskFields:
    """Return the fields of the form. Replaces the CR LF of browsers, so that it does not count as a change."""
    fields: TaskFields = {}
    if "title" in request.POST:
        fields["title"] = unix_lines(request.POST["title"])
    if "notes" in request.POST:
        fields["notes"] = unix_lines(request.POST["notes"])
    if "archetype" in request.POST:
        fields["archetype"] = request.POST["archetype"]
    if "status" in request.POST:
        fields["status"] = request.POST["status"]
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


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ProductError("no_day", "Choose the day to move it to, as 2026-11-23.") from error


def _format_date(row: Task) -> str:
    formats = {"day": "D j F Y", "month": "F Y", "year": "Y"}
    return date_format(row.date, formats[row.horizon])
