"""Serve the page of a conversation and its fragments: messages, composer, plan, report, queued message, approvals.

A view reads the request, calls one service or one page function, and renders.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, TypedDict
from uuid import UUID

from asgiref.sync import async_to_sync
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import trigger_client_event

from accounts.access.offered_models import offered_models, set_favourite
from accounts.access.sessions import SignedInRequest as Request
from accounts.connected_tools.services import missing_sign_ins
from accounts.models import User
from chat.conversations import services
from chat.conversations.sidebar import side_context
from chat.ledger.models import ModelCall
from chat.ledger.services import describe_total
from chat.models import Conversation, Message, NextMessage, Turn
from chat.models.conversation_state import ChatScope, scope_of, visible_conversation, visible_message, visible_turn
from chat.models.summary import NO_MARKS, marks_on
from chat.prompts import inspector
from chat.prompts import report as reports
from chat.prompts.document_budget import chosen_files
from chat.prompts.preview import Plan, TurnDraft, plan_ahead
from chat.prompts.wording import StatusLine, plan_line
from chat.runs import views as run_views
from chat.sending.offers import describe_offers, find_larger_model_offers, find_offers
from chat.sending.services import next_view, remove_next, send_or_queue, send_queued, start_conversation
from chat.turns.emitter import load_answer
from chat.turns.services import decide_call, find_call_part, stop_turn, with_decision_members
from chat.turns.submit import Ask
from chat.turns.submit import regenerate as answer_anew
from chat.web import messages as pages
from chat.web.home import composer_surroundings
from core.errors import ProductError
from core.requests import get_or_404, identifier, with_headers, with_row
from core.text import unix_lines
from files.models import File
from files.services import get_token_count
from llm.models import Model, ToolServer
from personas.models import Persona
from personas.services import model_for
from projects.models import Project
from projects.models.roles import visible_project
from projects.saved_prompts.models import SavedPrompt
from projects.saved_prompts.services import suggest_prompts, visible_saved_prompt
from projects.saved_prompts.variables import MAX_LENGTH, fill, variables

FIRST_PERSONAS = 6  # personas that a user without conversations is shown
ACCEPTED_HEADER = "Message-Accepted"  # a header that tells the composer that its message is stored


@require_http_methods(["GET", "POST"])
def home(request: Request) -> HttpResponse:
    if request.method == "GET":
        return _redirect_to_project(request) if request.GET.get("project") else page(request, None)
    scope: ChatScope | None = None
    try:
        scope = _new_scope(request, request.POST)
        ask = _ask(request)
        conversation = start_conversation(user=request.user, scope=scope, ask=ask, temporary=_temporary(request))
    except ProductError as error:
        return _show_refusal(request, None, error, scope)
    address = reverse("chat:conversation", args=[conversation.pk])
    if not request.htmx:
        return redirect(address)
    # Render the conversation into the open page: a redirect would load another page before the answer appears.
    response = page(request, visible_conversation(request.user, conversation.pk), chips=())
    response["Content-Location"] = address
    response[ACCEPTED_HEADER] = "yes"
    return response


def _redirect_to_project(request: Request) -> HttpResponse:
    """Redirect to the page of the project in the URL, with the rest of the query."""
    query = request.GET.copy()
    [project] = query.pop("project")[-1:]
    address = reverse("chat:project", args=[identifier(project, "project")])
    return redirect(f"{address}?{query.urlencode()}" if query else address)


@with_row(visible_conversation, "GET")
def conversation(request: Request, row: Conversation) -> HttpResponse:
    """Show a conversation: its newest messages, or the messages that `at`, `before` or `since` selects.

    With `whole` show a full page of the newest messages, for an open page that refreshes itself.
    """
    if "since" in request.GET:
        first = pages.first_since(row, request.GET["since"])
        return redirect(reverse("chat:conversation", args=[row.pk]) + f"?at={first}#m-{first}")
    if "whole" in request.GET:
        return page(request, row, shown=pages.branch_page(row, newest=pages.PAGE))
    place = request.GET.get("at") or request.GET.get("before")
    if place is None:
        return page(request, row)
    message = get_or_404(Message.objects.filter(conversation=row).select_related("parent"), place, "message")
    if "at" in request.GET:
        return page(request, row, shown=pages.page_at(row, message))
    shown = pages.branch_page(row, message)
    if request.htmx:
        context = {"conversation": row, "messages": shown.messages, "older": shown.older}
        return render(request, "chat/_messages.html", context)
    return page(request, row, shown=shown)


@with_row(visible_conversation)
def send(request: Request, row: Conversation) -> HttpResponse:
    """Send a message, or queue it while an answer is being written."""
    try:
        sent = send_or_queue(user=request.user, conversation=row, ask=_ask(request))
    except ProductError as error:
        return _show_refusal(request, row, error)
    if not isinstance(sent, NextMessage):
        return turns_response(request, row, sent, question=True)
    if not request.htmx:
        return redirect("chat:conversation", row.pk)
    response = render(request, "chat/_next.html", {"conversation": row, "next": next_view(row)}, status=202)
    response["HX-Retarget"] = "#next"
    response["HX-Reswap"] = "innerHTML"
    response[ACCEPTED_HEADER] = "yes"
    return response


@with_row(visible_message)
def regenerate(request: Request, message: Message) -> HttpResponse:
    """Answer a question anew, with the model that answered before or with the named models."""
    turns = answer_anew(
        user=request.user,
        message=message,
        models=_ids(request, "model", "model"),
        key=request.POST.get("key") or None,
        send_less="send_less" in request.POST,
    )
    return turns_response(request, message.conversation, turns, question=False)


@with_row(visible_message, "GET")
def message(request: Request, message: Message) -> HttpResponse:
    return render(request, "chat/_message.html", {"view": pages.one_message(message), "message": message})


@require_GET
def report(request: Request, pk: UUID) -> HttpResponse:
    """Show the context panel of an answer's last model call, or of the call with the number `call`.

    For htmx this is a fragment, otherwise a page.
    """
    related = ("conversation__persona", "conversation__owner", "user_message", "model__provider")
    rows = Turn.objects.visible_to(request.user).select_related(*related)
    turn = get_or_404(rows, pk, "turn")
    panel = inspector.of_turn(turn, reports.call_number(request.GET.get("call")))
    context = {
        "panel": panel,
        "turn": turn,
        "conversation": turn.conversation,
        "spent": describe_total(ModelCall.objects.filter(turn=turn)),
        "so_far": describe_total(ModelCall.objects.filter(conversation=turn.conversation)),
        "offers": describe_offers(find_larger_model_offers(turn, panel.report), panel.report["limit"])
        if panel is not None
        else (),
        "sign_ins": missing_sign_ins(request.user, panel.report.get("sign_ins", ())) if panel is not None else (),
        "then": _page_of(turn.conversation),
    }
    return render(request, "chat/_context.html" if request.htmx else "chat/context.html", context)


@require_POST
def plan(request: Request, pk: UUID | None = None) -> HttpResponse:
    """Show the plan of the draft: the line under the composer, or with `panel` the context panel.

    Almost every keystroke requests the line. The provider is asked to count only for the panel, which is rarely opened,
    and with `count`, which is sent once typing pauses.
    """
    scope = composer_scope(request, pk, request.POST)
    draft = TurnDraft(
        unix_lines(request.POST.get("text", "")), _ids(request, "files", "file"), request.POST.get("effort")
    )
    model = services.visible_model(request.user, next(iter(request.POST.getlist("model")), None)) or model_for(
        scope.persona, request.user
    )
    panel = "panel" in request.GET
    counts = not {"panel", "count"}.isdisjoint(request.GET)
    shown = _plan(request.user, scope, draft, model, count=counts, whole=panel)
    if not panel:
        return render(request, "chat/_plan.html", {"plan": shown, "plan_url": request.path, "swapped": True})
    row = scope.conversation
    marks = marks_on(row.pk, row.leaf_id) if row is not None else NO_MARKS
    plan_offers = find_offers(user=request.user, scope=scope, draft=draft, plan=shown["planned"], model=model)
    context = {
        **shown,
        "panel": inspector.of_plan(shown["planned"], marks),
        "plan_url": request.path,
        "conversation": row,
        "so_far": describe_total(ModelCall.objects.filter(conversation=row)) if row else "",
        "offers": describe_offers(plan_offers, shown["planned"]["limit"]),
    }
    return render(request, "chat/_context.html", context)


class PlanView(TypedDict):
    """A plan for the composer's template. `sizes` maps the ids of the draft's files to their tokens.

    `tasks_notice`: tasks go along, and the user has not hidden the notice that says so. `sign_ins`: tool servers whose
    tools are left out until the user signs in to them. `then`: the page to come back to from there.
    """

    planned: Plan
    panel: inspector.Panel | None
    line: StatusLine
    fits: bool
    sizes: dict[str, int]
    tasks_notice: bool
    sign_ins: list[ToolServer]
    then: str


def _plan(
    user: User, scope: ChatScope, draft: TurnDraft, model: Model, *, count: bool = False, whole: bool = False
) -> PlanView:
    """Return the plan of a draft. Without `whole` it has only the values for the line under the composer."""
    planned = plan_ahead(user=user, scope=scope, draft=draft, model=model, count=count, whole=whole)
    return {
        "planned": planned,
        "panel": inspector.of_plan(planned),
        "line": plan_line(planned),
        "fits": planned["fits"],
        "sizes": _sizes(user, draft, planned),
        "tasks_notice": planned["fits"] and "tasks" in planned["sections"] and not user.tasks_notice_seen,
        "sign_ins": missing_sign_ins(user, planned["sign_ins"] if planned["fits"] else ()),
        "then": _page_of(scope.conversation),
    }


def _page_of(conversation: Conversation | None) -> str:
    """Return the address of the conversation's page; for a draft without one, of the first page."""
    return reverse("chat:conversation", args=[conversation.pk]) if conversation is not None else reverse("chat:home")


def _sizes(user: User, draft: TurnDraft, planned: Plan) -> dict[str, int]:
    """Return the tokens of the draft's files by id: as planned, or if the draft does not fit, of their whole texts."""
    if planned["fits"] is False:
        files = chosen_files(user=user, ids=draft.files)
        return {str(file.pk): size for file in files if (size := get_token_count(file=file))}
    chosen = {str(pk) for pk in draft.files}
    sized = ((each.get("id") or "", each.get("tokens")) for each in planned["sources"])
    return {pk: tokens for pk, tokens in sized if pk in chosen and tokens}


@with_row(visible_turn)
def stop(request: Request, turn: Turn) -> HttpResponse:
    stop_turn(user=request.user, turn=turn)
    if request.htmx:
        return HttpResponse(status=204)
    return redirect("chat:conversation", turn.conversation_id)


@with_row(visible_conversation, "GET")
def queued(request: Request, row: Conversation) -> HttpResponse:
    return render(request, "chat/_next.html", {"conversation": row, "next": next_view(row)})


@with_row(visible_conversation)
def send_next(request: Request, row: Conversation) -> HttpResponse:
    turns = send_queued(user=request.user, conversation=row, pk=_queued_message(request))
    return turns_response(request, row, turns, question=True)


@with_row(visible_conversation)
def remove_queued(request: Request, row: Conversation) -> HttpResponse:
    remove_next(user=request.user, conversation=row, pk=_queued_message(request))
    if request.htmx:
        return render(request, "chat/_next.html", {"conversation": row, "next": None})
    return redirect("chat:conversation", row.pk)


@with_row(visible_conversation)
def edit_queued(request: Request, row: Conversation) -> HttpResponse:
    """Show the page with the queued message in the composer, for browsers without scripts."""
    removed = remove_next(user=request.user, conversation=row, pk=_queued_message(request))
    return page(request, row, draft=removed.text, chips=chosen_files(user=request.user, ids=removed.files))


def _queued_message(request: Request) -> UUID | None:
    """Return the id of the queued message that the page showed. Another message may be queued by now."""
    pk = request.POST.get("next")
    return identifier(pk, "message") if pk else None


class Decision(NamedTuple):
    """A user's decision on a tool call. `remember`: it also holds for the rest of the conversation."""

    allow: bool
    remember: bool


DECISIONS = {
    "yes": Decision(allow=True, remember=False),
    "always": Decision(allow=True, remember=True),
    "no": Decision(allow=False, remember=False),
    "never": Decision(allow=False, remember=True),
}


FORM_FIELD = "field "  # the beginning of the names of fields in a tool's form


@with_row(visible_turn, "GET", "POST")
def approval(request: Request, turn: Turn) -> HttpResponse:
    """Show the current state of a tool call that waits for approval. A POST stores the user's decision."""
    if request.method == "POST":
        decision = DECISIONS.get(request.POST.get("allow", ""), DECISIONS["no"])
        call = request.POST.get("call", "")
        # Fields of a tool's form have a prefix, so that their names never meet those of the decision.
        content = {
            name.removeprefix(FORM_FIELD): values if len(values) > 1 else values[0]
            for name, values in request.POST.lists()
            if name.startswith(FORM_FIELD) and values
        }
        decide_call(
            user=request.user,
            turn=turn,
            call=call,
            allow=decision.allow,
            remember=decision.remember,
            content=content,
        )
        if request.htmx:
            return HttpResponse(status=204)  # the page gets the decision with the answer's events
        return redirect(reverse("chat:conversation", args=[turn.conversation_id]) + f"#m-{turn.answer_id}")
    part = find_call_part(async_to_sync(load_answer)(turn).parts, request.GET.get("call", ""))
    context = {"part": with_decision_members(part), "turn_id": turn.pk, "status": turn.answer.status}
    return render(request, "chat/_approval.html", context)


@with_row(visible_conversation)
def change_persona(request: Request, row: Conversation) -> HttpResponse:
    """Change or remove the persona from the next message on. Earlier messages stay unchanged."""
    persona = services.visible_persona(request.user, request.POST.get("persona"))
    services.update_conversation(user=request.user, conversation=row, fields={"persona": persona})
    if not request.htmx:
        return redirect("chat:conversation", row.pk)
    return trigger_client_event(HttpResponse(status=204), "planchange")


@require_GET
def offer_prompts(request: Request, pk: UUID | None = None) -> HttpResponse:
    """Show completions for a message that begins with /: the user's prompts and the persona's starter messages."""
    scope = scope_of(visible_conversation(request.user, pk)) if pk else _new_scope(request, request.GET)
    offered = suggest_prompts(
        user=request.user, persona=scope.persona, project=scope.project, typed=request.GET.get("q", "")
    )
    return render(request, "chat/_prompts.html", {"offered": offered})


@with_row(visible_saved_prompt, "GET", "POST")
def use_prompt(request: Request, prompt: SavedPrompt) -> HttpResponse:
    """Ask for the variables of a saved prompt, in a dialog or on a page.

    A POST returns the filled text: as plain text for htmx, otherwise in the composer of a new conversation.
    """
    prompt_variables = variables(prompt.text)
    problem = None
    values = {each.name: request.POST.get(f"value {each.name}", each.default) for each in prompt_variables}
    if request.method == "POST" or not prompt_variables:
        try:
            text = fill(prompt.text, values)
        except ProductError as error:
            problem = error
        else:
            if request.htmx:
                return HttpResponse(text, content_type="text/plain; charset=utf-8")
            return page(request, None, draft=text)
    context = {
        "section": "personas",
        "prompt": prompt,
        "asked": [(each, values[each.name]) for each in prompt_variables],
        "longest": MAX_LENGTH,
        "problem": problem,
    }
    template = "chat/_fill.html" if request.htmx else "chat/fill.html"
    return render(request, template, context, status=problem.status if problem else 200)


@require_GET
def all_models(request: Request) -> HttpResponse:
    """Show all models on offer, for a page that lists only the first ones. With `again`, for the menu of an answer."""
    template = "chat/_again_models.html" if "again" in request.GET else "chat/_who_models.html"
    return render(request, template, {"models": offered_models(request.user)})


@require_POST
def favourite(request: Request, pk: UUID) -> HttpResponse:
    """Mark a model as a favourite (`favourite`: true or false), and return its button."""
    model = set_favourite(user=request.user, model=pk, favourite=request.POST.get("favourite") == "true")
    return render(request, "chat/_favourite.html", {"each": model})


@require_GET
def starters(request: Request) -> HttpResponse:
    """Show the starter messages of the persona selected in the composer; without one the workspace's suggestions."""
    persona = services.visible_persona(request.user, request.GET.get("persona"))
    context = {"chosen_persona": persona, "suggests": not persona and not request.GET.get("project")}
    return render(request, "chat/_starters.html", context)


def page(
    request: Request,
    row: Conversation | None,
    *,
    shown: pages.MessagesPage | None = None,
    draft: str | None = None,
    chips: Sequence[File] | None = None,
    problem: ProductError | None = None,
    scope: ChatScope | None = None,
) -> HttpResponse:
    """Render the page of a conversation, or of a new one if `row` is None.

    `scope` is that of the conversation, by default of the one in the URL. A new one in a project is the project's page.
    `shown` are its messages, by default the newest. `draft` and `chips` are the composer's text and files, by default
    those of the URL. `problem` is shown above the composer and sets the HTTP status.
    """
    if shown is None:
        shown = pages.branch_page(row) if row else pages.NO_MESSAGES
    if draft is None:
        draft = request.GET.get("text", "")  # a persona's starter message, followed as a link
    if chips is None:
        chips = _chips(request)
    if scope is None:
        scope = scope_of(row) if row else _new_scope(request, request.GET)
    choices = pages.choices(request.user, scope, all_models=request.GET.get("models") == "all")
    plan_view: PlanView | None = None
    if choices["chosen_model"] and not shown.excerpt:
        turn_draft = TurnDraft(draft, [file.pk for file in chips])
        with suppress(ProductError):  # the first change of the draft plans again and shows the error
            plan_view = _plan(request.user, scope, turn_draft, choices["chosen_model"])
    context = {
        "conversation": row,
        "messages": shown.messages,
        "older": shown.older,
        "excerpt": shown.excerpt,
        "answering": pages.has_live_answer(shown.messages),
        **side_context(request),
        "chips": chips,
        "draft": draft,
        "problem": problem,
        "plan": plan_view,
        "temporary": row.temporary if row else _temporary(request),
        "original": pages.find_original(row),
        "suggests": row is None and scope.persona is None and scope.project is None,
        "folds_from": pages.FOLDED_CHARACTERS,
        "next": next_view(row) if getattr(row, "waits", True) else None,
        "run": run_views.run_of_conversation(request.user, row),
        "first": first_steps(request.user) if row is None and not scope.project and not request.GET else None,
        **choices,
        **(composer_surroundings(request.user, scope, query=request.GET.get("q", "")) if row is None else {}),
    }
    return render(request, "chat/conversation.html", context, status=problem.status if problem else 200)


def _show_refusal(
    request: Request, row: Conversation | None, error: ProductError, scope: ChatScope | None = None
) -> HttpResponse:
    """Show the page again with the error and the draft. For htmx raise the error: the page still has the draft."""
    if request.htmx:
        raise error
    response = page(request, row, problem=error, draft=request.POST.get("text", ""), scope=scope)
    return with_headers(response, error)


def turns_response(request: Request, row: Conversation, turns: list[Turn], *, question: bool) -> HttpResponse:
    """Show the new answers, with `question` also the question above them. Without scripts redirect to the page."""
    if not request.htmx:
        return redirect("chat:conversation", row.pk)
    context = {"conversation": row, "messages": pages.answers_page(turns, question=question)}
    response = render(request, "chat/_turn.html", context)
    response[ACCEPTED_HEADER] = "yes"
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


def composer_scope(request: Request, pk: UUID | None, fields: QueryDict) -> ChatScope:
    """Return the scope of the conversation `pk`, or of the new one that the composer's fields would start."""
    return scope_of(visible_conversation(request.user, pk)) if pk else _new_scope(request, fields)


def _chips(request: Request) -> list[File]:
    """Return the files named in the URL, and those of a form that is shown again without scripts."""
    ids = [*request.GET.getlist("file"), *request.POST.getlist("files")]
    return chosen_files(user=request.user, ids=[identifier(pk, "file") for pk in ids if pk])


def _new_scope(request: Request, fields: QueryDict) -> ChatScope:
    """Return the scope of a conversation that does not exist yet."""
    project = visible_project(request.user, fields["project"]) if fields.get("project") else None
    persona = services.visible_persona(request.user, fields.get("persona"))
    return ChatScope(None, project, persona or (project.persona if project else None))


def _temporary(request: Request) -> bool:
    """Return whether the URL or the composer asks for a temporary conversation."""
    return (request.POST if request.method == "POST" else request.GET).get("temporary") == "yes"


class FirstSteps(TypedDict):
    """Hints for a user without conversations: the oldest visible project, and the first visible personas."""

    project: Project | None
    personas: Sequence[Persona]


def first_steps(user: User) -> FirstSteps | None:
    """Return the hints for a user without conversations; None for a user who has one, archived or not."""
    if Conversation.objects.visible_to(user).exists():
        return None
    return {
        "project": Project.objects.visible_to(user).order_by("created").first(),
        "personas": list(Persona.objects.visible_to(user)[:FIRST_PERSONAS]),
    }
