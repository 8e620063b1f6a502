"""The pages of readings: the estimate, the list, one reading, and the actions on it."""

from typing import Any, Required, TypedDict

from django.db.models import Q
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from accounts.access.offered_models import offered_models
from accounts.access.sessions import SignedInRequest as Request
from chat.citations.services import in_words
from chat.models.conversation_state import visible_message
from chat.readings import services
from chat.readings.checking import get_doubts
from chat.readings.models import Reading
from chat.readings.pages import PARTS_PER_PAGE, ReadingView
from core.errors import NotFound, ProductError
from core.requests import with_headers, with_row
from files.models import File
from files.services import visible_file
from projects.models.roles import visible_project

READINGS_PER_PAGE = 100  # readings on the page that lists all
OFFERED_FILES = 50  # files offered for reading together with one


@require_GET
def readings(request: Request) -> HttpResponse:
    rows = Reading.objects.listed_for(request.user).order_by("-id")[:READINGS_PER_PAGE]
    return render(request, "chat/readings.html", {"section": "files", "readings": rows})


@with_row(visible_file, "GET", "POST")
def read_file(request: Request, file: File) -> HttpResponse:
    """Show the form for a question on a file and the files in `with`, with the estimate. A POST begins the reading.

    The POST must repeat the estimated number of calls. `message` is the id of a message whose text is the question.
    """
    query = request.POST if request.method == "POST" else request.GET
    problem: ProductError | None = None
    question = _reading_request(request, file, query)
    if request.method == "POST":
        calls = query.get("calls", "")
        number = int(calls) if calls.isascii() and calls.isdigit() and len(calls) < 9 else 0
        try:
            reading = services.start_reading(user=request.user, request=question, calls=number)
            return redirect("chat:reading", reading.pk)
        except ProductError as error:
            problem = error
    context = {
        "section": "files",
        "file": file,
        "asked": question,
        "problem": problem,
        "models": offered_models(request.user),
        "most": Reading.MAX_QUESTION,
        "others": _offered_files(request, file, question, query.get("project", "")),
        "project": query.get("project", ""),
        "before": Reading.objects.listed_for(request.user).filter(files__file=file).order_by("-id")[:READINGS_PER_PAGE],
        **_estimate_context(question, problem),
    }
    response = render(request, "chat/read_file.html", context, status=problem.status if problem else 200)
    return with_headers(response, problem) if problem else response


@with_row(visible_file)
def plan_file(request: Request, file: File) -> HttpResponse:
    """Show the estimate for the form as it is now."""
    return render(request, "chat/_reading_plan.html", _estimate_context(_reading_request(request, file, request.POST)))


def _reading_request(request: Request, file: File, query: QueryDict) -> services.ReadingRequest:
    """Return the request of the form. Raises `NotFound` and `too_many_files`."""
    question = query.get("question", "")
    if not question and query.get("message"):
        question = visible_message(request.user, query["message"]).text
    return services.reading_request(
        user=request.user,
        files=[file.pk, *query.getlist("with")],
        question=question,
        model=query.get("model", ""),
        conversation=query.get("conversation", ""),
    )


def _offered_files(
    request: Request, file: File, question: services.ReadingRequest, project: str
) -> list[tuple[File, bool]]:
    """Return the files that can be read together with `file`, and whether they are chosen.

    The chosen files come first. Then come the files of the project or conversation from which the form was opened;
    without either, the person's latest files.
    """
    rows = File.objects.visible_to(request.user)
    if project:
        rows = rows.filter(project_entries__project=visible_project(request.user, project))
    elif question.conversation is not None:
        project_id = question.conversation.project_id
        attached = Q(attachments__message__conversation=question.conversation)
        rows = rows.filter(attached | Q(project_entries__project=project_id) if project_id else attached)
    else:
        rows = rows.filter(owner=request.user)
    readable = rows.filter(status__in=(File.Status.READY, File.Status.TOO_LONG), content__isnull=False).distinct()
    chosen = list(question.files[1:])
    offered = [row for row in readable.order_by("-pk")[:OFFERED_FILES] if row != file and row not in chosen]
    return [*((row, True) for row in chosen), *((row, False) for row in offered)]


class EstimateContext(TypedDict, total=False):
    """The estimate in a template's context; None if `problem` is the reason against it."""

    planned: Required[services.ReadingEstimate | None]
    problem: ProductError


def _estimate_context(question: services.ReadingRequest, problem: ProductError | None = None) -> EstimateContext:
    """Return the estimate, or the error. An earlier `problem` takes precedence."""
    try:
        return {"planned": services.estimate(request=question)}
    except ProductError as error:
        return {"planned": None, "problem": problem or error}


@with_row(services.visible_reading, "GET")
def reading(request: Request, row: Reading) -> HttpResponse:
    return _page(request, row)


def _page(request: Request, row: Reading, problem: ProductError | None = None) -> HttpResponse:
    begin = request.GET.get("from", "")
    first = int(begin) if begin.isascii() and begin.isdigit() and len(begin) < 6 else 0
    view = ReadingView(row)
    context: dict[str, object] = {"section": "files", "view": view, "reading": row, "problem": problem, "first": first}
    if not row.live:
        context |= {
            "parts": view.shown(first),
            "following": first + PARTS_PER_PAGE if first + PARTS_PER_PAGE < len(view.parts) else None,
            "previous": max(0, first - PARTS_PER_PAGE) if first else None,
            "again": _resume_estimate(row, only_answer=False),
            "early": _resume_estimate(row, only_answer=True),
        }
    template = "chat/_reading.html" if request.htmx else "chat/reading.html"
    return render(request, template, context, status=problem.status if problem else 200)


def _resume_estimate(row: Reading, *, only_answer: bool) -> services.ReadingEstimate | ProductError | None:
    """Return the estimate for resuming the reading; None if nothing is missing, an error if it cannot be resumed."""
    if only_answer and row.status == Reading.Status.DONE:
        return None
    try:
        return services.plan_again(reading=row, only_answer=only_answer)
    except ProductError as error:
        return None if only_answer or error.code == "nothing_to_read" else error


@with_row(services.visible_reading, "GET")
def doubt(request: Request, row: Reading, citation: int) -> HttpResponse:
    """Show a sentence of the answer and the passage that does not support it, side by side."""
    shown = next((each for each in get_doubts(row) if each["citation"] == citation), None)
    if shown is None:
        raise NotFound("citation")
    sources = ReadingView(row).sources([row.answer])
    context = {
        "section": "files",
        "reading": row,
        "sentence": shown["sentence"],
        "evidence": shown["evidence"],
        "reasons": in_words(shown),
        "sources": [sources[number] for number in shown["numbers"] if number in sources],
    }
    return render(request, "chat/reading_doubt.html", context)


@with_row(services.visible_reading)
def stop(request: Request, row: Reading) -> HttpResponse:
    return _redirect_after(request, row, lambda: services.stop_reading(user=request.user, reading=row))


@with_row(services.visible_reading)
def resume(request: Request, row: Reading) -> HttpResponse:
    calls = request.POST.get("calls", "")
    number = int(calls) if calls.isascii() and calls.isdigit() and len(calls) < 9 else 0
    early = request.POST.get("only_answer") == "yes"
    return _redirect_after(
        request,
        row,
        lambda: services.resume_reading(user=request.user, reading=row, calls=number, only_answer=early),
    )


def _redirect_after(request: Request, row: Reading, act: Any) -> HttpResponse:
    try:
        act()
    except ProductError as error:
        row.refresh_from_db()
        return with_headers(_page(request, row, error), error)
    return redirect("chat:reading", row.pk)


@with_row(services.visible_reading)
def remove(request: Request, row: Reading) -> HttpResponse:
    try:
        services.remove_reading(user=request.user, reading=row)
    except ProductError as error:
        return _page(request, row, error)
    return redirect("chat:readings")


@with_row(services.visible_reading)
def take_along(request: Request, row: Reading) -> HttpResponse:
    """Attach the notes as a file to the composer of the reading's conversation, or of a new one."""
    try:
        file = services.store_notes_as_file(user=request.user, reading=row)
    except ProductError as error:
        return with_headers(_page(request, row, error), error)
    place = reverse("chat:conversation", args=[row.conversation_id]) if row.conversation_id else reverse("chat:home")
    return redirect(f"{place}?file={file.pk}")
