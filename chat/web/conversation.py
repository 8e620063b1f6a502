"""The pages. A view reads the request, calls one service or one page function, and renders."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access.middleware import SignedInRequest as Request
from accounts.models import User
from chat.conversations import services
from chat.conversations.sidebar import side_context
from chat.models import Conversation, Message, NextMessage, Turn
from chat.models.lookups import visible_conversation, visible_message
from chat.models.scope import ChatScope, scope_of
from chat.prompts import inspector
from chat.prompts import report as reports
from chat.prompts.preview import Draft, chosen_files, plan_ahead
from chat.runs import pages as run_pages
from chat.sending.pages import next_view
from chat.sending.services import send_or_queue, start_conversation
from chat.turns.services import stop_turn
from chat.turns.submit import Ask
from chat.turns.submit import regenerate as answer_anew
from chat.web import messages as pages
from chat.web.permalink import page_at
from core.errors import ProductError
from core.lookups import get_or_404, identifier
from files.models import File
from llm.models import Model
from projects.models import Project
from projects.services import visible_project


@require_http_methods(["GET", "POST"])
def home(request: Request) -> HttpResponse:
    if request.method == "GET":
        return page(request, None)
    try:
        ask = _ask(request)
        conversation = start_conversation(user=request.user, scope=_new_scope(request, request.POST), ask=ask)
    except ProductError as error:
        return _refused(request, None, error)
    return _go(request, reverse("chat:conversation", args=[conversation.pk]))


@require_GET
def conversation(request: Request, pk: UUID) -> HttpResponse:
    found = visible_conversation(request.user, pk)
    place = request.GET.get("at") or request.GET.get("before")
    if place is None:
        return page(request, found)
    message = get_or_404(Message.objects.filter(conversation=found).select_related("parent"), place, "message")
    if "at" in request.GET:
        return page(request, found, **page_at(found, message))
    messages, older = pages.branch_page(found, message)
    context: dict[str, Any] = {"messages": messages, "older": older}
    if request.htmx:
        return render(request, "chat/_messages.html", {"conversation": found, **context})
    return page(request, found, **context)


@require_POST
def send(request: Request, pk: UUID) -> HttpResponse:
    found = visible_conversation(request.user, pk)
    try:
        sent = send_or_queue(user=request.user, conversation=found, ask=_ask(request))
    except ProductError as error:
        return _refused(request, found, error)
    if not isinstance(sent, NextMessage):
        return turns_response(request, found, sent, question=True)
    if not request.htmx:
        return redirect("chat:conversation", found.pk)
    response = render(request, "chat/_next.html", {"conversation": found, "next": next_view(found)}, status=202)
    response["HX-Retarget"], response["HX-Reswap"] = "#next", "innerHTML"
    return response


@require_POST
def regenerate(request: Request, pk: UUID) -> HttpResponse:
    """By the model that answered before, or by those that are named."""
    found = visible_message(request.user, pk)
    models, key = _ids(request, "model", "model"), request.POST.get("key") or None
    turns = answer_anew(user=request.user, message=found, models=models, key=key)
    return turns_response(request, found.conversation, turns, question=False)


@require_GET
def message(request: Request, pk: UUID) -> HttpResponse:
    return render(request, "chat/_message.html", {"message": pages.one_message(visible_message(request.user, pk))})


@require_GET
def report(request: Request, pk: UUID) -> HttpResponse:
    """The context panel of an answer, of its last model call or of the `call`th: a fragment for the page beside it, or
    a page of its own."""
    rows = Turn.objects.visible_to(request.user).select_related("conversation__persona", "user_message", "model")
    turn = get_or_404(rows, pk, "turn")
    panel = inspector.of_turn(turn, reports.call_number(request.GET.get("call")))
    context = {"panel": panel, "turn": turn, "conversation": turn.conversation}
    return render(request, "chat/_context.html" if request.htmx else "chat/context.html", context)


@require_POST
def plan(request: Request, pk: UUID | None = None) -> HttpResponse:
    """What sending the draft would mean: the line under the composer and the panel behind it."""
    shown = _plan(
        request.user,
        asked_scope(request, pk, request.POST),
        Draft(request.POST.get("text", ""), _ids(request, "files", "file")),
        services.visible_model(next(iter(request.POST.getlist("model")), None)),
    )
    if "panel" in request.GET:
        found = visible_conversation(request.user, pk) if pk else None
        return render(request, "chat/_context.html", {"panel": shown["panel"], "conversation": found})
    return render(request, "chat/_plan.html", {"plan": shown, "plan_url": request.path})


def _plan(user: User, scope: ChatScope, draft: Draft, model: Model | None) -> dict[str, Any]:
    planned = plan_ahead(user=user, scope=scope, draft=draft, model=model)
    return {"panel": inspector.of_plan(planned), "line": inspector.plan_line(planned), "fits": planned["fits"]}


@require_POST
def stop(request: Request, pk: UUID) -> HttpResponse:
    turn = get_or_404(Turn.objects.visible_to(request.user).select_related("conversation"), pk, "turn")
    stop_turn(user=request.user, turn=turn)
    if request.htmx:
        return HttpResponse(status=204)
    return redirect("chat:conversation", turn.conversation_id)


def page(request: Request, found: Conversation | None, status: int = 200, **more: Any) -> HttpResponse:
    messages, older = pages.branch_page(found) if found and "messages" not in more else ([], None)
    scope = scope_of(found) if found else _new_scope(request, request.GET)
    context: dict[str, Any] = {
        "conversation": found,
        "messages": messages,
        "older": older,
        **side_context(request),
        "chips": _chips(request),
        "draft": request.GET.get("text", ""),  # a persona's starter message, followed as a link
        "next": next_view(found) if getattr(found, "waits", True) else None,
        "run": run_pages.of_conversation(request.user, found),
        "first": first_steps(request.user) if found is None and not request.GET else None,
        **pages.choices(request.user, scope),
        **more,
    }
    if context["chosen_model"] and not context.get("excerpt"):
        draft = Draft(context["draft"], [file.pk for file in context["chips"]])
        with suppress(ProductError):  # asked again with the first change, and then said
            context["plan"] = _plan(request.user, scope, draft, context["chosen_model"])
    return render(request, "chat/conversation.html", context, status=status)


def _refused(request: Request, found: Conversation | None, error: ProductError) -> HttpResponse:
    """Without scripts the page comes again with the problem and the draft; with them the draft never left the page."""
    if request.htmx:
        raise error
    problem = {"code": error.code, "detail": error.detail}
    return page(request, found, error.status, problem=problem, draft=request.POST.get("text", ""))


def turns_response(request: Request, found: Conversation, turns: list[Turn], *, question: bool) -> HttpResponse:
    if not request.htmx:
        return redirect("chat:conversation", found.pk)
    context = {"conversation": found, "messages": pages.answers_page(turns, question=question)}
    return render(request, "chat/_turn.html", context)


def _go(request: Request, url: str) -> HttpResponse:
    """htmx follows a redirect inside a fragment; HX-Redirect makes the page itself go there."""
    if request.htmx:
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


def asked_scope(request: Request, pk: UUID | None, fields: QueryDict) -> ChatScope:
    """The scope of the conversation `pk`, or of the new one that the composer's fields would start."""
    return scope_of(visible_conversation(request.user, pk)) if pk else _new_scope(request, fields)


def _chips(request: Request) -> list[File]:
    """The files that an address brings along, and those of a form that comes again without scripts."""
    ids = [*request.GET.getlist("file"), *request.POST.getlist("files")]
    return chosen_files(user=request.user, ids=[identifier(pk, "file") for pk in ids if pk])


def _new_scope(request: Request, fields: QueryDict) -> ChatScope:
    """Where a conversation that does not exist yet would be."""
    project = visible_project(request.user, fields["project"]) if fields.get("project") else None
    persona = services.visible_persona(request.user, fields.get("persona"))
    return ChatScope(None, project, persona or (project.persona if project else None))


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """`project`: the oldest that the person sees, for the first person of a workspace the demo project."""

    project: Project | None


def first_steps(user: User) -> FirstSteps | None:
    """None for whoever has a conversation, also an archived one."""
    if Conversation.objects.visible_to(user).exists():
        return None
    return FirstSteps(Project.objects.visible_to(user).order_by("created").first())
