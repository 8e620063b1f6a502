"""The page's two waiting rooms: the message that waits for the answer, and calls that wait for their person."""

from uuid import UUID

from asgiref.sync import async_to_sync
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access.sessions import SignedInRequest as Request
from chat.models.conversation_state import visible_conversation, visible_turn
from chat.prompts.preview import chosen_files
from chat.sending.pages import next_view
from chat.sending.queued_message import remove_next
from chat.sending.services import send_queued
from chat.turns import services as turns
from chat.turns.emitter import answer_of
from chat.turns.services import decide_call
from chat.web.conversation import page, turns_response
from core.lookups import identifier


@require_GET
def show(request: Request, pk: UUID) -> HttpResponse:
    found = visible_conversation(request.user, pk)
    return render(request, "chat/_next.html", {"conversation": found, "next": next_view(found)})


@require_POST
def send(request: Request, pk: UUID) -> HttpResponse:
    found = visible_conversation(request.user, pk)
    turns = send_queued(user=request.user, conversation=found, pk=_named(request))
    return turns_response(request, found, turns, question=True)


@require_POST
def remove(request: Request, pk: UUID) -> HttpResponse:
    found = visible_conversation(request.user, pk)
    remove_next(user=request.user, conversation=found, pk=_named(request))
    if request.htmx:
        return render(request, "chat/_next.html", {"conversation": found, "next": None})
    return redirect("chat:conversation", found.pk)


@require_POST
def edit(request: Request, pk: UUID) -> HttpResponse:
    """Without scripts: the page again, with what waited in the composer."""
    found = visible_conversation(request.user, pk)
    taken = remove_next(user=request.user, conversation=found, pk=_named(request))
    chips = chosen_files(user=request.user, ids=taken.files)
    return page(request, found, draft=taken.text, chips=chips)


@require_http_methods(["GET", "POST"])
def approval(request: Request, pk: UUID) -> HttpResponse:
    """A call that a person has to allow, as it stands at this moment; a POST decides."""
    turn = visible_turn(request.user, pk)
    if request.method == "POST":
        allow = request.POST.get("allow") == "yes"
        decide_call(user=request.user, turn=turn, call=request.POST.get("call", ""), allow=allow)
        if request.htmx:
            return HttpResponse(status=204)  # what was decided comes with the answer's events
        return redirect(reverse("chat:conversation", args=[turn.conversation_id]) + f"#m-{turn.answer_id}")
    part = turns.asking(async_to_sync(answer_of)(turn).parts, request.GET.get("call", ""))
    context = {"part": turns.shown(part), "turn_id": turn.pk, "status": turn.answer.status}
    return render(request, "chat/_approval.html", context)


def _named(request: Request) -> UUID | None:
    """The message that the page showed, which may not be the one that waits by now."""
    given = request.POST.get("next")
    return identifier(given, "message") if given else None
