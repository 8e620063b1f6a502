"""The pages of readings: the plan beforehand, the list, one reading, and what is done with it."""

from typing import Any

from django.db.models import Q
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from accounts.access.rights import models_of
from accounts.access.sessions import SignedInRequest as Request
from chat.citations.services import in_words
from chat.models.conversation_state import visible_message
from chat.readings import services
from chat.readings.checking import doubts_of
from chat.readings.models import Reading
from chat.readings.pages import SHOWN, ReadingView
from core.errors import NotFound, ProductError
from core.requests import with_headers, with_row
from files.models import File
from files.services import visible_file
from projects.models.roles import visible_project

LISTED = 100  # readings on the page of all
OFFERED = 50  # files to be read with one


@require_GET
def readings(request: Request) -> HttpResponse:
    rows = Reading.objects.listed_for(request.user).order_by("-id")[:LISTED]
    return render(request, "chat/readings.html", {"section": "files", "readings": rows})


@with_row(visible_file, "GET", "POST")
def read_file(request: Request, file: File) -> HttpResponse:
    """The form with what it takes to ask a question over all of a file, and of those that `with` names; a POST begins,
    if the number of calls is the one shown. `message`: whose text is the question."""
    given, problem = request.POST if request.method == "POST" else request.GET, None
    asked = _asked(request, file, given)
    if request.method == "POST":
        calls = given.get("calls", "")
        number = int(calls) if calls.isascii() and calls.isdigit() and len(calls) < 9 else 0
        try:
            made = services.start_reading(user=request.user, asked=asked, calls=number)
            return redirect("chat:reading", made.pk)
        except ProductError as error:
            problem = error
    context = {
        "section": "files",
        "file": file,
        "asked": asked,
        "problem": problem,
        "models": models_of(request.user).select_related("provider").order_by("-default", "name"),
        "most": Reading.MAX_QUESTION,
        "others": _others(request, file, asked, given.get("project", "")),
        "project": given.get("project", ""),
        "before": Reading.objects.listed_for(request.user).filter(files__file=file).order_by("-id")[:LISTED],
        **_planned(asked, problem),
    }
    response = render(request, "chat/read_file.html", context, status=problem.status if problem else 200)
    return with_headers(response, problem) if problem else response


@with_row(visible_file)
def plan_file(request: Request, file: File) -> HttpResponse:
    """What it takes, as the form stands now."""
    return render(request, "chat/_reading_plan.html", _planned(_asked(request, file, request.POST)))


def _asked(request: Request, file: File, given: QueryDict) -> services.Asked:
    """Raises `NotFound`."""
    named = {name: given.get(name, "") for name in ("question", "model", "conversation")}
    if not named["question"] and given.get("message"):
        named["question"] = visible_message(request.user, given["message"]).text
    return services.asked_of(user=request.user, files=[file.pk, *given.getlist("with")], **named)


def _others(request: Request, file: File, asked: services.Asked, project: str) -> list[tuple[File, bool]]:
    """The files that can be read with it, and whether they are: those chosen, then those beside it in the project or
    conversation that it was opened from, else the latest of the person."""
    rows = File.objects.visible_to(request.user)
    if project:
        rows = rows.filter(project_entries__project=visible_project(request.user, project))
    elif asked.conversation is not None:
        place = asked.conversation
        beside = Q(attachments__message__conversation=place)
        rows = rows.filter(beside | Q(project_entries__project=place.project_id) if place.project_id else beside)
    else:
        rows = rows.filter(owner=request.user)
    readable = rows.filter(status__in=(File.Status.READY, File.Status.TOO_LONG), content__isnull=False).distinct()
    chosen = list(asked.files[1:])
    beside_it = [row for row in readable.order_by("-pk")[:OFFERED] if row != file and row not in chosen]
    return [*((row, True) for row in chosen), *((row, False) for row in beside_it)]


def _planned(asked: services.Asked, problem: ProductError | None = None) -> dict[str, Any]:
    """The plan, and why there is none unless something else is the matter."""
    try:
        return {"planned": services.planned(asked=asked)}
    except ProductError as error:
        return {"planned": None, "problem": problem or error}


@with_row(services.visible_reading, "GET")
def reading(request: Request, found: Reading) -> HttpResponse:
    return _page(request, found)


def _page(request: Request, found: Reading, problem: ProductError | None = None) -> HttpResponse:
    begin = request.GET.get("from", "")
    first = int(begin) if begin.isascii() and begin.isdigit() and len(begin) < 6 else 0
    view = ReadingView(found)
    context: dict[str, Any] = {"section": "files", "view": view, "reading": found, "problem": problem, "first": first}
    if not found.live:
        context |= {"parts": view.shown(first), "following": first + SHOWN if first + SHOWN < len(view.parts) else None}
        context |= {"previous": max(0, first - SHOWN) if first else None}
        context |= {name: _again(found, only_answer=name == "early") for name in ("again", "early")}
    template = "chat/_reading.html" if request.htmx else "chat/reading.html"
    return render(request, template, context, status=problem.status if problem else 200)


def _again(found: Reading, *, only_answer: bool) -> services.Planned | ProductError | None:
    """What going on takes; None where there is nothing to go on with, an error where it cannot."""
    if only_answer and found.status == Reading.Status.DONE:
        return None
    try:
        return services.plan_again(reading=found, only_answer=only_answer)
    except ProductError as error:
        return None if only_answer or error.code == "nothing_to_read" else error


@with_row(services.visible_reading, "GET")
def doubt(request: Request, found: Reading, citation: int) -> HttpResponse:
    """A sentence of the answer and the passage that does not carry it, side by side."""
    shown = next((each for each in doubts_of(found) if each["citation"] == citation), None)
    if shown is None:
        raise NotFound("citation")
    sources = ReadingView(found).sources([found.answer])
    context = {
        "section": "files",
        "reading": found,
        "sentence": shown["sentence"],
        "evidence": shown["evidence"],
        "reasons": in_words(shown),
        "sources": [sources[number] for number in shown["numbers"] if number in sources],
    }
    return render(request, "chat/reading_doubt.html", context)


@with_row(services.visible_reading)
def stop(request: Request, found: Reading) -> HttpResponse:
    return _done(request, found, lambda: services.stop_reading(user=request.user, reading=found))


@with_row(services.visible_reading)
def resume(request: Request, found: Reading) -> HttpResponse:
    calls = request.POST.get("calls", "")
    number = int(calls) if calls.isascii() and calls.isdigit() and len(calls) < 9 else 0
    early = request.POST.get("only_answer") == "yes"
    return _done(
        request,
        found,
        lambda: services.resume_reading(user=request.user, reading=found, calls=number, only_answer=early),
    )


def _done(request: Request, found: Reading, act: Any) -> HttpResponse:
    try:
        act()
    except ProductError as error:
        found.refresh_from_db()
        return with_headers(_page(request, found, error), error)
    return redirect("chat:reading", found.pk)


@with_row(services.visible_reading)
def remove(request: Request, found: Reading) -> HttpResponse:
    try:
        services.remove_reading(user=request.user, reading=found)
    except ProductError as error:
        return _page(request, found, error)
    return redirect("chat:readings")


@with_row(services.visible_reading)
def take_along(request: Request, found: Reading) -> HttpResponse:
    """Into its conversation, or a new one: as a file at the composer."""
    try:
        file = services.take_along(user=request.user, reading=found)
    except ProductError as error:
        return with_headers(_page(request, found, error), error)
    place = (
        reverse("chat:conversation", args=[found.conversation_id]) if found.conversation_id else reverse("chat:home")
    )
    return redirect(f"{place}?file={file.pk}")
