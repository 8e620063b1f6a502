"""The page's two waiting rooms: the message that waits for the answer, and calls that wait for their person."""

from uuid import UUID

from asgiref.sync import async_to_sync
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.middleware import SignedInRequest as Request
from chat import services
from chat.models import Turn
from chat.plans import chosen_files
from chat.views import page, turns_response, visible_conversation
from chat.waiting import approvals
from chat.waiting.next_messages import remove_next
from chat.waiting.next_pages import next_view
from files.pages import file_view
from llm.errors import NotFound
from projects.services import identifier


@login_required
@require_GET
def show(request: Request, pk: UUID) -> HttpResponse:
    found = visible_conversation(request, pk)
    return render(request, "chat/_next.html", {"conversation": found, "next": next_view(found)})


@login_required
@require_POST
def send(request: Request, pk: UUID) -> HttpResponse:
    found = visible_conversation(request, pk)
    turns = services.send_next(user=request.user, conversation=found, pk=_named(request))
    return turns_response(request, found, turns, question=True)


@login_required
@require_POST
def remove(request: Request, pk: UUID) -> HttpResponse:
    found = visible_conversation(request, pk)
    remove_next(user=request.user, conversation=found, pk=_named(request))
    if request.headers.get("HX-Request"):
        return render(request, "chat/_next.html", {"conversation": found, "next": None})
    return redirect("chat:conversation", found.pk)


@login_required
@require_POST
def edit(request: Request, pk: UUID) -> HttpResponse:
    """Without scripts: the page again, with what waited in the composer."""
    found = visible_conversation(request, pk)
    taken = remove_next(user=request.user, conversation=found, pk=_named(request))
    chips = [file_view(file) for file in chosen_files(user=request.user, ids=taken.files)]
    return page(request, found, draft=taken.text, chips=chips)


@login_required
@require_http_methods(["GET", "POST"])
def approval(request: Request, pk: UUID) -> HttpResponse:
    """A call that a person has to allow, as it stands at this moment; a POST decides."""
    turn = Turn.objects.visible_to(request.user).select_related("conversation", "answer").filter(pk=pk).first()
    if turn is None:
        raise NotFound("turn")
    if request.method == "POST":
        allow = request.POST.get("allow") == "yes"
        services.decide_call(user=request.user, turn=turn, call=request.POST.get("call", ""), allow=allow)
        if request.headers.get("HX-Request"):
            return HttpResponse(status=204)  # what was decided comes with the answer's events
        return redirect(reverse("chat:conversation", args=[turn.conversation_id]) + f"#m-{turn.answer_id}")
    part = approvals.asking(async_to_sync(approvals.parts_of)(turn), request.GET.get("call", ""))
    context = {"part": approvals.shown(part), "turn_id": turn.pk, "status": turn.answer.status}
    return render(request, "chat/_approval.html", context)


def _named(request: Request) -> UUID | None:
    """The message that the page showed, which may not be the one that waits by now."""
    given = request.POST.get("next")
    return identifier(given, "message") if given else None
