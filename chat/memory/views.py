"""The page “Memory” of the settings, and the acts on facts there, below answers and in the context panel."""

from collections.abc import Callable, Mapping

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST
from django_htmx.http import trigger_client_event

from accounts.access.sessions import SignedInRequest as Request
from accounts.models import User
from chat.memory import services
from chat.memory.listing import PAGE_SIZE, count_facts, list_facts, with_sources
from chat.memory.models import Fact, Profile
from chat.memory.services import EVERYWHERE, FactScope, ProfileFields
from chat.models import Conversation
from chat.models.conversation_state import visible_conversation
from core.errors import NotFound, ProductError
from core.requests import get_or_404, with_row
from personas.models import Persona
from projects.models import Project
from projects.models.roles import visible_project
from workspace.models.settings import workspace_at

LISTED_STATUSES = (Fact.Status.PROPOSED, Fact.Status.KEPT, Fact.Status.OUTDATED)


@require_http_methods(["GET", "POST"])
def memory(request: Request) -> HttpResponse:
    """Show the profile and the facts. A POST saves the profile."""
    if request.method == "GET":
        return _render_page(request)
    fields: ProfileFields = {
        "about": request.POST.get("about", ""),
        "answering": request.POST.get("answering", ""),
        "in_prompts": "in_prompts" in request.POST,
        "proposals": request.POST.get("proposals", Profile.Proposals.OFF),
        "search_conversations": "search_conversations" in request.POST,
    }
    try:
        services.save_profile(user=request.user, fields=fields)
    except ProductError as error:
        return _render_page(request, error, written={name: str(value) for name, value in fields.items()})
    return redirect(f"{reverse('chat:memory')}?saved")


@require_POST
def add(request: Request) -> HttpResponse:
    """Store a fact that the person writes."""
    try:
        scope = _parse_scope(request.user, request.POST.get("scope", ""))
        services.add_fact(user=request.user, text=request.POST.get("text", ""), scope=scope)
    except ProductError as error:
        return _render_page(request, error, written={"fact": request.POST.get("text", "")})
    return redirect("chat:memory")


@require_POST
def forget_everything(request: Request) -> HttpResponse:
    services.forget_all(user=request.user)
    return redirect("chat:memory")


@with_row(visible_conversation)
def switch(request: Request, row: Conversation) -> HttpResponse:
    """Switch the memory of this conversation on or off."""
    services.switch_memory(user=request.user, conversation=row, on=request.POST.get("memory") == "yes")
    if request.htmx:
        return trigger_client_event(HttpResponse(status=204), "planchange")
    return redirect("chat:conversation", row.pk)


@with_row(services.visible_fact)
def fact(request: Request, row: Fact) -> HttpResponse:
    """Carry out the act of a form on a fact: keep, correct, forget, restore, pin, unpin, leave out or bring back."""
    act = _ACTS.get(request.POST.get("act", ""))
    if act is None:
        raise NotFound("act")
    act(request, row)
    if request.htmx:
        return trigger_client_event(HttpResponse(status=204), "markchange")  # the page reloads all its turns
    conversation = request.POST.get("conversation")
    return redirect("chat:conversation", conversation) if conversation else redirect("chat:memory")


def _keep(request: Request, row: Fact) -> None:
    services.keep_fact(
        user=request.user, fact=row, text=request.POST.get("text"), keep_older="keep_older" in request.POST
    )


def _correct(request: Request, row: Fact) -> None:
    services.correct_fact(user=request.user, fact=row, text=request.POST.get("text", ""))


def _forget(request: Request, row: Fact) -> None:
    services.forget_fact(user=request.user, fact=row)


def _restore(request: Request, row: Fact) -> None:
    services.restore_fact(user=request.user, fact=row)


def _pin(request: Request, row: Fact) -> None:
    services.pin_fact(user=request.user, fact=row, pinned=request.POST["act"] == "pin")


def _leave_out(request: Request, row: Fact) -> None:
    conversation = visible_conversation(request.user, request.POST.get("conversation", ""))
    left_out = request.POST["act"] == "leave_out"
    services.leave_out(user=request.user, conversation=conversation, fact=row, left_out=left_out)


_ACTS: Mapping[str, Callable[[Request, Fact], None]] = {
    "keep": _keep,
    "correct": _correct,
    "forget": _forget,
    "restore": _restore,
    "pin": _pin,
    "unpin": _pin,
    "leave_out": _leave_out,
    "bring_back": _leave_out,
}


def _parse_scope(user: User, value: str) -> FactScope:
    """Return the scope that a form names: empty, `project:<id>` or `persona:<id>`. Raises `NotFound`."""
    kind, _, pk = value.partition(":")
    if kind == "project":
        return FactScope(project=visible_project(user, pk))
    if kind == "persona":
        return FactScope(persona=get_or_404(Persona.objects.visible_to(user), pk, "persona"))
    return EVERYWHERE


def _render_page(
    request: Request, error: ProductError | None = None, written: Mapping[str, str] | None = None
) -> HttpResponse:
    """Show the page. `written`: the texts of a refused form, by field."""
    user = request.user
    profile = services.profile_for(user)
    status = request.GET.get("status", "")
    query = request.GET.get("q", "")
    rows = list_facts(user, status=status if status in LISTED_STATUSES else "", query=query)
    page = Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page"))
    workspace = workspace_at()
    context = {
        "place": "memory",
        "section": "settings",
        "profile": profile,
        "written": written or {},
        "problem": error,
        "saved": "saved" in request.GET,
        "choices": [
            choice
            for choice in Profile.Proposals.choices
            if choice[0] != Profile.Proposals.KEEP or workspace.memory_unasked
        ],
        "page": page,
        "facts": with_sources(list(page.object_list)),
        "counts": count_facts(user),
        "status": status,
        "query": query,
        "projects": Project.objects.visible_to(user).order_by("name", "id"),
        "personas": Persona.objects.visible_to(user).order_by("name", "id"),
        "longest": Profile.MAX_TEXT,
        "longest_fact": Fact.MAX_TEXT,
    }
    return render(request, "memory/page.html", context, status=error.status if error else 200)
