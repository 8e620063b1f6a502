"""The conversation's page and the fragments of it: messages, composer, plan and report, queued message, approvals.

A view reads the request, calls one service or one page function, and renders.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import trigger_client_event

from accounts.access.rights import models_of
from accounts.access.sessions import SignedInRequest as Request
from accounts.models import User
from chat.conversations import services
from chat.conversations.sidebar import side_context
from chat.ledger.models import ModelCall
from chat.ledger.services import spent
from chat.models import Conversation, Message, NextMessage, Turn
from chat.models.conversation_state import ChatScope, scope_of, visible_conversation, visible_message, visible_turn
from chat.models.summary import NO_MARKS, marks_on
from chat.prompts import inspector
from chat.prompts import report as reports
from chat.prompts.document_budget import chosen_files
from chat.prompts.preview import Draft, plan_ahead
from chat.prompts.wording import plan_line
from chat.runs import views as run_views
from chat.sending.offers import in_words, offers, offers_again
from chat.sending.services import next_view, remove_next, send_or_queue, send_queued, start_conversation
from chat.turns.emitter import answer_of
from chat.turns.services import asking, decide_call, shown, stop_turn
from chat.turns.submit import Ask
from chat.turns.submit import regenerate as answer_anew
from chat.web import messages as pages
from chat.web.home import surroundings
from core.errors import ProductError
from core.requests import get_or_404, identifier, with_headers, with_row
from core.text import unix_lines
from files.models import File
from files.services import tokens_of
from llm.models import Model
from personas.services import model_for
from projects.models import Project
from projects.models.roles import visible_project
from projects.saved_prompts.models import SavedPrompt
from projects.saved_prompts.services import offered_prompts, visible_saved_prompt
from projects.saved_prompts.variables import LONGEST, fill, variables

ACCEPTED = "Message-Accepted"  # a header: by it the composer knows that what it has sent is stored
DECISIONS = {"yes": (True, False), "always": (True, True), "no": (False, False), "never": (False, True)}


@require_http_methods(["GET", "POST"])
def home(request: Request) -> HttpResponse:
    if request.method == "GET":
        return page(request, None)
    try:
        ask = _ask(request)
        scope, temporary = _new_scope(request, request.POST), _temporary(request)
        conversation = start_conversation(user=request.user, scope=scope, ask=ask, temporary=temporary)
    except ProductError as error:
        return _refused(request, None, error)
    address = reverse("chat:conversation", args=[conversation.pk])
    if not request.htmx:
        return redirect(address)
    # The page of a new conversation becomes this one in place, so nothing is loaded before the answer is seen.
    response = page(request, visible_conversation(request.user, conversation.pk), chips=[])
    response["Content-Location"], response[ACCEPTED] = address, "yes"
    return response


@with_row(visible_conversation, "GET")
def conversation(request: Request, found: Conversation) -> HttpResponse:
    if "since" in request.GET:
        asked = pages.first_since(found, request.GET["since"])
        return redirect(reverse("chat:conversation", args=[found.pk]) + f"?at={asked}#m-{asked}")
    if "whole" in request.GET:  # a page that takes over what has changed may show more than it has begun with
        messages, older = pages.branch_page(found, newest=pages.PAGE)
        return page(request, found, messages=messages, older=older)
    place = request.GET.get("at") or request.GET.get("before")
    if place is None:
        return page(request, found)
    message = get_or_404(Message.objects.filter(conversation=found).select_related("parent"), place, "message")
    if "at" in request.GET:
        return page(request, found, **pages.page_at(found, message))
    messages, older = pages.branch_page(found, message)
    context: dict[str, Any] = {"messages": messages, "older": older}
    if request.htmx:
        return render(request, "chat/_messages.html", {"conversation": found, **context})
    return page(request, found, **context)


@with_row(visible_conversation)
def send(request: Request, found: Conversation) -> HttpResponse:
    try:
        sent = send_or_queue(user=request.user, conversation=found, ask=_ask(request))
    except ProductError as error:
        return _refused(request, found, error)
    if not isinstance(sent, NextMessage):
        return turns_response(request, found, sent, question=True)
    if not request.htmx:
        return redirect("chat:conversation", found.pk)
    response = render(request, "chat/_next.html", {"conversation": found, "next": next_view(found)}, status=202)
    response["HX-Retarget"], response["HX-Reswap"], response[ACCEPTED] = "#next", "innerHTML", "yes"
    return response


@with_row(visible_message)
def regenerate(request: Request, message: Message) -> HttpResponse:
    """By the model that answered before, or by those that are named."""
    models, key = _ids(request, "model", "model"), request.POST.get("key") or None
    send_less = "send_less" in request.POST
    turns = answer_anew(user=request.user, message=message, models=models, key=key, send_less=send_less)
    return turns_response(request, message.conversation, turns, question=False)


@with_row(visible_message, "GET")
def message(request: Request, message: Message) -> HttpResponse:
    return render(request, "chat/_message.html", {"view": pages.one_message(message), "message": message})


@require_GET
def report(request: Request, pk: UUID) -> HttpResponse:
    """The context panel of an answer, of its last model call or of the `call`th: a fragment for the page beside it, or
    a page of its own."""
    related = ("conversation__persona", "conversation__owner", "user_message", "model__provider")
    rows = Turn.objects.visible_to(request.user).select_related(*related)
    turn = get_or_404(rows, pk, "turn")
    panel = inspector.of_turn(turn, reports.call_number(request.GET.get("call")))
    context = {
        "panel": panel,
        "turn": turn,
        "conversation": turn.conversation,
        "spent": spent(ModelCall.objects.filter(turn=turn)),
        "so_far": spent(ModelCall.objects.filter(conversation=turn.conversation)),
        "offers": in_words(offers_again(turn, panel.report), panel.report["limit"]) if panel is not None else (),
    }
    return render(request, "chat/_context.html" if request.htmx else "chat/context.html", context)


@require_POST
def plan(request: Request, pk: UUID | None = None) -> HttpResponse:
    """What sending the draft would mean: the line under the composer and the panel behind it."""
    scope = asked_scope(request, pk, request.POST)
    draft = Draft(unix_lines(request.POST.get("text", "")), _ids(request, "files", "file"), request.POST.get("effort"))
    model = services.visible_model(request.user, next(iter(request.POST.getlist("model")), None)) or model_for(
        scope.persona, request.user
    )
    # A panel is opened now and then; the line is asked for with almost every key, and to count once nobody types.
    panel, counts = "panel" in request.GET, not {"panel", "count"}.isdisjoint(request.GET)
    shown = _plan(request.user, scope, draft, model, count=counts, whole=panel)
    if not panel:
        return render(request, "chat/_plan.html", {"plan": shown, "plan_url": request.path, "swapped": True})
    found = scope.conversation
    marks = marks_on(found.pk, found.leaf_id) if found is not None else NO_MARKS
    found_offers = offers(user=request.user, scope=scope, draft=draft, plan=shown["planned"], model=model)
    context = {
        **shown,
        "panel": inspector.of_plan(shown["planned"], marks),
        "plan_url": request.path,
        "conversation": found,
        "so_far": spent(ModelCall.objects.filter(conversation=found)) if found else "",
        "offers": in_words(found_offers, shown["planned"]["limit"]),
    }
    return render(request, "chat/_context.html", context)


def _plan(
    user: User, scope: ChatScope, draft: Draft, model: Model, *, count: bool = False, whole: bool = False
) -> dict[str, Any]:
    """`whole`: with all that a panel shows, else what the line at the composer does."""
    planned = plan_ahead(user=user, scope=scope, draft=draft, model=model, count=count, whole=whole)
    panel, line = inspector.of_plan(planned), plan_line(planned)
    sizes = _sizes(user, draft, planned)
    return {"planned": planned, "panel": panel, "line": line, "fits": planned["fits"], "sizes": sizes}


def _sizes(user: User, draft: Draft, planned: Mapping[str, Any]) -> dict[str, int]:
    """Tokens of the draft's files by their ids, as the panel has them; of what does not fit those of their texts."""
    if not planned["fits"]:
        files = chosen_files(user=user, ids=draft.files)
        return {str(file.pk): size for file in files if (size := tokens_of(file=file))}
    chosen = {str(pk) for pk in draft.files}
    return {each["id"]: each["tokens"] for each in planned["sources"] if each["id"] in chosen and each.get("tokens")}


@with_row(visible_turn)
def stop(request: Request, turn: Turn) -> HttpResponse:
    stop_turn(user=request.user, turn=turn)
    if request.htmx:
        return HttpResponse(status=204)
    return redirect("chat:conversation", turn.conversation_id)


@with_row(visible_conversation, "GET")
def queued(request: Request, found: Conversation) -> HttpResponse:
    return render(request, "chat/_next.html", {"conversation": found, "next": next_view(found)})


@with_row(visible_conversation)
def send_next(request: Request, found: Conversation) -> HttpResponse:
    turns = send_queued(user=request.user, conversation=found, pk=_named(request))
    return turns_response(request, found, turns, question=True)


@with_row(visible_conversation)
def remove_queued(request: Request, found: Conversation) -> HttpResponse:
    remove_next(user=request.user, conversation=found, pk=_named(request))
    if request.htmx:
        return render(request, "chat/_next.html", {"conversation": found, "next": None})
    return redirect("chat:conversation", found.pk)


@with_row(visible_conversation)
def edit_queued(request: Request, found: Conversation) -> HttpResponse:
    """Without scripts: the page again, with what waited in the composer."""
    taken = remove_next(user=request.user, conversation=found, pk=_named(request))
    chips = chosen_files(user=request.user, ids=taken.files)
    return page(request, found, draft=taken.text, chips=chips)


def _named(request: Request) -> UUID | None:
    """The message that the page showed, which may not be the one that waits by now."""
    given = request.POST.get("next")
    return identifier(given, "message") if given else None


@with_row(visible_turn, "GET", "POST")
def approval(request: Request, turn: Turn) -> HttpResponse:
    """A call that a person has to allow, as it stands at this moment; a POST decides."""
    if request.method == "POST":
        allow, remember = DECISIONS.get(request.POST.get("allow", ""), (False, False))
        call = request.POST.get("call", "")
        decide_call(user=request.user, turn=turn, call=call, allow=allow, remember=remember)
        if request.htmx:
            return HttpResponse(status=204)  # what was decided comes with the answer's events
        return redirect(reverse("chat:conversation", args=[turn.conversation_id]) + f"#m-{turn.answer_id}")
    part = asking(async_to_sync(answer_of)(turn).parts, request.GET.get("call", ""))
    context = {"part": shown(part), "turn_id": turn.pk, "status": turn.answer.status}
    return render(request, "chat/_approval.html", context)


@with_row(visible_conversation)
def change_persona(request: Request, found: Conversation) -> HttpResponse:
    """From the next message on another persona answers, or none; what was said stays."""
    persona = services.visible_persona(request.user, request.POST.get("persona"))
    services.update_conversation(user=request.user, conversation=found, fields={"persona": persona})
    if not request.htmx:
        return redirect("chat:conversation", found.pk)
    return trigger_client_event(HttpResponse(status=204), "planchange")


@require_GET
def offer_prompts(request: Request, pk: UUID | None = None) -> HttpResponse:
    """What a / at the beginning of a message may mean: prompts that the person sees here, and the persona's starter
    messages."""
    scope = scope_of(visible_conversation(request.user, pk)) if pk else _new_scope(request, request.GET)
    offered = offered_prompts(
        user=request.user, persona=scope.persona, project=scope.project, typed=request.GET.get("q", "")
    )
    return render(request, "chat/_prompts.html", {"offered": offered})


@with_row(visible_saved_prompt, "GET", "POST")
def use_prompt(request: Request, found: SavedPrompt) -> HttpResponse:
    """Asks for what a saved prompt leaves open, in a dialog or on a page. A POST gives the text: to a script as it is,
    else in the field of a new conversation."""
    asked, problem = variables(found.text), None
    values = {each.name: request.POST.get(f"value {each.name}", each.default) for each in asked}
    if request.method == "POST" or not asked:
        try:
            text = fill(found.text, values)
        except ProductError as error:
            problem = error
        else:
            if request.htmx:
                return HttpResponse(text, content_type="text/plain; charset=utf-8")
            return page(request, None, draft=text)
    context = {
        "section": "personas",
        "prompt": found,
        "asked": [(each, values[each.name]) for each in asked],
        "longest": LONGEST,
        "problem": problem,
    }
    template = "chat/_fill.html" if request.htmx else "chat/fill.html"
    return render(request, template, context, status=problem.status if problem else 200)


@require_GET
def all_models(request: Request) -> HttpResponse:
    """All that can be asked, for a page that offers the first of many. `again`: for the menu of an answer."""
    template = "chat/_again_models.html" if "again" in request.GET else "chat/_who_models.html"
    return render(request, template, {"models": models_of(request.user)})


@require_GET
def starters(request: Request) -> HttpResponse:
    """The starter messages of the persona that is being chosen, or of none."""
    persona = services.visible_persona(request.user, request.GET.get("persona"))
    return render(request, "chat/_starters.html", {"chosen_persona": persona})


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
        "temporary": found.temporary if found else _temporary(request),
        "next": next_view(found) if getattr(found, "waits", True) else None,
        "run": run_views.of_conversation(request.user, found),
        "first": first_steps(request.user) if found is None and not request.GET else None,
        **pages.choices(request.user, scope, all_models=request.GET.get("models") == "all"),
        **(surroundings(request.user, scope) if found is None else {}),
        **more,
    }
    context["answering"] = pages.being_written(context["messages"])
    if context["chosen_model"] and not context.get("excerpt"):
        draft = Draft(context["draft"], [file.pk for file in context["chips"]])
        with suppress(ProductError):  # asked again with the first change, and then said
            context["plan"] = _plan(request.user, scope, draft, context["chosen_model"])
    return render(request, "chat/conversation.html", context, status=status)


def _refused(request: Request, found: Conversation | None, error: ProductError) -> HttpResponse:
    """Without scripts the page comes again with the problem and the draft; with them the draft never left the page."""
    if request.htmx:
        raise error
    problem = error
    response = page(request, found, error.status, problem=problem, draft=request.POST.get("text", ""))
    return with_headers(response, error)


def turns_response(request: Request, found: Conversation, turns: list[Turn], *, question: bool) -> HttpResponse:
    if not request.htmx:
        return redirect("chat:conversation", found.pk)
    context = {"conversation": found, "messages": pages.answers_page(turns, question=question)}
    response = render(request, "chat/_turn.html", context)
    response[ACCEPTED] = "yes"
    return response


def _ask(request: Request) -> Ask:
    return Ask(
        text=unix_lines(request.POST.get("text", "")),
        files=_ids(request, "files", "file"),
        models=list(dict.fromkeys(_ids(request, "model", "model"))),
        key=request.POST.get("key", "")[:100] or None,
        effort=request.POST.get("effort"),
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


def _temporary(request: Request) -> bool:
    """Whether the new conversation is to be temporary, by the address or the composer."""
    return (request.POST if request.method == "POST" else request.GET).get("temporary") == "yes"


def first_steps(user: User) -> dict[str, Any] | None:
    """None for whoever has a conversation, also an archived one.

    `project`: the oldest that the person sees, for the first person of a workspace the demo project.
    """
    if Conversation.objects.visible_to(user).exists():
        return None
    return {"project": Project.objects.visible_to(user).order_by("created").first()}
