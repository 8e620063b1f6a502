"""The pages. A view reads the request, calls one service or one page function, and renders."""

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db.models import Exists, OuterRef
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.middleware import SignedInRequest as Request
from chat import pages, panels, reports, services
from chat.asking import Ask
from chat.first_run import first_steps
from chat.models import Conversation, Message, NextMessage, Turn
from chat.places import page_at
from chat.plans import Draft, chosen_files, plan_ahead
from chat.prompts import Place, place_of
from chat.runs import pages as run_pages
from chat.side.pages import side_context
from chat.tree import with_rows
from chat.waiting.next_pages import next_view
from files.pages import FileView, file_view
from llm.errors import NotFound, ProductError
from projects.services import identifier, visible_project


@login_required
@require_http_methods(["GET", "POST"])
def home(request: Request) -> HttpResponse:
    if request.method == "GET":
        return page(request, None)
    try:
        ask = _ask(request)
        conversation = services.start_conversation(user=request.user, place=_new_place(request, request.POST), ask=ask)
    except ProductError as error:
        return _refused(request, None, error)
    return _go(request, reverse("chat:conversation", args=[conversation.pk]))


@login_required
@require_GET
def conversation(request: Request, pk: UUID) -> HttpResponse:
    found = visible_conversation(request, pk)
    place = request.GET.get("at") or request.GET.get("before")
    if place is None:
        return page(request, found)
    message = (
        Message.objects.filter(conversation=found, pk=identifier(place, "message")).select_related("parent").first()
    )
    if message is None:
        raise NotFound("message")
    if "at" in request.GET:
        return page(request, found, **page_at(found, message))
    messages, older = pages.branch_page(found, message)
    context: dict[str, Any] = {"messages": messages, "older": older}
    if request.headers.get("HX-Request"):
        return render(request, "chat/_messages.html", {"conversation": found, **context})
    return page(request, found, **context)


@login_required
@require_POST
def send(request: Request, pk: UUID) -> HttpResponse:
    found = visible_conversation(request, pk)
    try:
        sent = services.send_or_keep(user=request.user, conversation=found, ask=_ask(request))
    except ProductError as error:
        return _refused(request, found, error)
    if not isinstance(sent, NextMessage):
        return turns_response(request, found, sent, question=True)
    if not request.headers.get("HX-Request"):
        return redirect("chat:conversation", found.pk)
    response = render(request, "chat/_next.html", {"conversation": found, "next": next_view(found)}, status=202)
    response["HX-Retarget"], response["HX-Reswap"] = "#next", "innerHTML"
    return response


@login_required
@require_POST
def regenerate(request: Request, pk: UUID) -> HttpResponse:
    """By the model that answered before, or by those that are named."""
    found = visible_message(request, pk)
    models, key = _ids(request, "model", "model"), request.POST.get("key") or None
    turns = services.regenerate(user=request.user, message=found, models=models, key=key)
    return turns_response(request, found.conversation, turns, question=False)


@login_required
@require_GET
def message(request: Request, pk: UUID) -> HttpResponse:
    return render(request, "chat/_message.html", {"message": pages.one_message(visible_message(request, pk))})


@login_required
@require_GET
def report(request: Request, pk: UUID) -> HttpResponse:
    """The context panel of an answer, of its last model call or of the `call`th: a fragment for the page beside it, or
    a page of its own."""
    rows = Turn.objects.visible_to(request.user).select_related("conversation__persona", "user_message", "model")
    turn = rows.filter(pk=pk).first()
    if turn is None:
        raise NotFound("turn")
    panel = panels.of_turn(turn, reports.call_number(request.GET.get("call")))
    context = {"panel": panel, "turn": turn, "conversation": turn.conversation}
    fragment = request.headers.get("HX-Request")
    return render(request, "chat/_context.html" if fragment else "chat/context.html", context)


@login_required
@require_POST
def plan(request: Request, pk: UUID | None = None) -> HttpResponse:
    """What sending the draft would mean: the line under the composer and the panel behind it."""
    planned = plan_ahead(
        user=request.user,
        place=asked_place(request, pk, request.POST),
        draft=Draft(request.POST.get("text", ""), _ids(request, "files", "file")),
        model=services.visible_model(next(iter(request.POST.getlist("model")), None)),
    )
    context = {"panel": panels.of_plan(planned), "line": panels.plan_line(planned), "fits": planned["fits"]}
    if "panel" in request.GET:
        context["conversation"] = visible_conversation(request, pk) if pk else None
        return render(request, "chat/_context.html", context)
    return render(request, "chat/_plan.html", context)


@login_required
@require_POST
def stop(request: Request, pk: UUID) -> HttpResponse:
    turn = Turn.objects.visible_to(request.user).select_related("conversation").filter(pk=pk).first()
    if turn is None:
        raise NotFound("turn")
    services.stop_turn(user=request.user, turn=turn)
    if request.headers.get("HX-Request"):
        return HttpResponse(status=204)
    return redirect("chat:conversation", turn.conversation_id)


def page(request: Request, found: Conversation | None, status: int = 200, **more: Any) -> HttpResponse:
    messages, older = pages.branch_page(found) if found and "messages" not in more else ([], None)
    context = {
        "conversation": found,
        "messages": messages,
        "older": older,
        **side_context(request),
        "chips": _chips(request),
        "draft": request.GET.get("text", ""),  # a persona's starter message, followed as a link
        "next": next_view(found) if getattr(found, "waits", True) else None,
        "run": run_pages.of_conversation(request.user, found),
        "first": first_steps(request.user) if found is None and not request.GET else None,
        **pages.choices(request.user, place_of(found) if found else _new_place(request, request.GET)),
        **more,
    }
    return render(request, "chat/conversation.html", context, status=status)


def _refused(request: Request, found: Conversation | None, error: ProductError) -> HttpResponse:
    """Without scripts the page comes again with the problem and the draft; with them the draft never left the page."""
    if request.headers.get("HX-Request"):
        raise error
    problem = {"code": error.code, "detail": error.detail}
    return page(request, found, error.status, problem=problem, draft=request.POST.get("text", ""))


def turns_response(request: Request, found: Conversation, turns: list[Turn], *, question: bool) -> HttpResponse:
    if not request.headers.get("HX-Request"):
        return redirect("chat:conversation", found.pk)
    context = {"conversation": found, "messages": pages.answers_page(turns, question=question)}
    return render(request, "chat/_turn.html", context)


def _go(request: Request, url: str) -> HttpResponse:
    """htmx follows a redirect inside a fragment; HX-Redirect makes the page itself go there."""
    if request.headers.get("HX-Request"):
        response = HttpResponse(status=204)
        response["HX-Redirect"] = url
        return response
    return redirect(url)


def _ask(request: Request) -> Ask:
    return Ask(
        text=request.POST.get("text", ""),
        files=_ids(request, "files", "file"),
        models=list(dict.fromkeys(_ids(request, "model", "model"))),
        key=request.POST.get("key", "")[:100] or None,
    )


def _ids(request: Request, name: str, what: str) -> list[UUID]:
    return [identifier(pk, what) for pk in request.POST.getlist(name) if pk]


def asked_place(request: Request, pk: UUID | None, fields: QueryDict) -> Place:
    """The place of the conversation `pk`, or of the new one that the composer's fields would start."""
    return place_of(visible_conversation(request, pk)) if pk else _new_place(request, fields)


def _chips(request: Request) -> list[FileView]:
    """The files that an address brings along, and those of a form that comes again without scripts."""
    ids = [*request.GET.getlist("file"), *request.POST.getlist("files")]
    files = chosen_files(user=request.user, ids=[identifier(pk, "file") for pk in ids if pk])
    return [file_view(file) for file in files]


def _new_place(request: Request, fields: QueryDict) -> Place:
    """Where a conversation that does not exist yet would be."""
    project = visible_project(request.user, fields["project"]) if fields.get("project") else None
    persona = services.visible_persona(request.user, fields.get("persona"))
    return Place(None, project, persona or (project.persona if project else None))


def visible_conversation(request: Request, pk: UUID) -> Conversation:
    related = ("persona__budget_profile", "project__persona__budget_profile", "owner", "leaf")
    rows = Conversation.objects.visible_to(request.user).select_related(*related).defer("leaf__parts", "leaf__tokens")
    # Asked along, since it is seldom so, and a page has few queries to spend.
    rows = rows.annotate(waits=Exists(NextMessage.objects.filter(conversation=OuterRef("pk"))))
    found = rows.filter(pk=pk).first()
    if found is None:
        raise NotFound("conversation")
    return found


def visible_message(request: Request, pk: UUID) -> Message:
    rows = with_rows(Message.objects.visible_to(request.user)).select_related(
        "conversation__persona", "conversation__project__persona", "parent"
    )
    found = rows.filter(pk=pk).first()
    if found is None:
        raise NotFound("message")
    return found
