"""The parts of personas' pages that only the conversation's side knows: what would be sent, and who uses one."""

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import trigger_client_event

from accounts.access.sessions import SignedInRequest as Request
from chat.conversations.services import update_conversation, visible_persona
from chat.models import Conversation
from chat.models.conversation_state import ChatScope, scope_of, visible_conversation
from chat.prompts import inspector
from chat.prompts.preview import Draft, plan_ahead
from personas import services
from projects.models import Project


@require_POST
def plan(request: Request, pk: UUID) -> HttpResponse:
    """What a model would get for a sample message with the persona as it is stored: a fragment, or a page."""
    persona = services.visible_persona(request.user, pk)
    text = request.POST.get("text", "")
    planned = plan_ahead(user=request.user, scope=ChatScope(persona=persona), draft=Draft(text))
    context = {"panel": inspector.of_plan(planned), "line": inspector.plan_line(planned), "persona": persona}
    return render(request, "chat/_context.html" if request.htmx else "personas/plan.html", context)


@require_http_methods(["GET", "POST"])
def delete(request: Request, pk: UUID) -> HttpResponse:
    """Asks with a page that says what goes on without the persona; a POST deletes it."""
    persona = services.visible_persona(request.user, pk)
    services.require_owner(user=request.user, persona=persona)
    if request.method == "POST":
        services.delete_persona(user=request.user, persona=persona)
        return redirect("personas:list")
    # A number tells nothing of what others talk about, and the owner of a shared persona has to know it.
    uses = {
        "conversations": Conversation.objects.filter(persona=persona, origin=Conversation.Origin.WORKSPACE).count(),
        "projects": Project.objects.filter(persona=persona).count(),
    }
    return render(request, "personas/delete.html", {"persona": persona, **uses})


@require_POST
def change(request: Request, pk: UUID) -> HttpResponse:
    """From the next message on another persona answers, or none; what was said stays."""
    found = visible_conversation(request.user, pk)
    persona = visible_persona(request.user, request.POST.get("persona"))
    update_conversation(user=request.user, conversation=found, fields={"persona": persona})
    if not request.htmx:
        return redirect("chat:conversation", pk)
    return trigger_client_event(HttpResponse(status=204), "planchange")


@require_GET
def offer(request: Request, pk: UUID | None = None) -> HttpResponse:
    """What a / at the beginning of a message may mean: the persona's starter messages and the person's own prompts."""
    persona = (
        scope_of(visible_conversation(request.user, pk)).persona
        if pk
        else visible_persona(request.user, request.GET.get("persona"))
    )
    offered = services.offered_prompts(user=request.user, persona=persona, typed=request.GET.get("q", ""))
    return render(request, "chat/_prompts.html", {"offered": offered})


@require_GET
def starters(request: Request) -> HttpResponse:
    """The starter messages of the persona that is being chosen, or of none."""
    persona = visible_persona(request.user, request.GET.get("persona"))
    return render(request, "chat/_starters.html", {"chosen_persona": persona})
