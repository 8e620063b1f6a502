"""Attach a past conversation to the message in the composer, which shows its chip."""

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from accounts.access.sessions import SignedInRequest as Request
from chat.conversations import services
from chat.conversations.attaching import AttachableConversation, Draft, attach, own_source, shared_source
from chat.web.conversation import composer_scope
from core.requests import identifier
from core.text import unix_lines
from personas.services import model_for


@require_POST
def attach_conversation(request: Request, pk: UUID) -> HttpResponse:
    """Attach a conversation of the user. The form is the composer's, with the id of its `conversation`, if any."""
    return _attach(request, own_source(request.user, pk))


@require_POST
def attach_shared(request: Request, pk: UUID) -> HttpResponse:
    """Attach a conversation that is shared with the user."""
    return _attach(request, shared_source(request.user, pk))


def _attach(request: Request, source: AttachableConversation) -> HttpResponse:
    fields = request.POST
    place = fields.get("conversation")
    scope = composer_scope(request, identifier(place, "conversation") if place else None, fields)
    model = services.visible_model(request.user, next(iter(fields.getlist("model")), None)) or model_for(
        scope.persona, request.user
    )
    files = [identifier(each, "file") for each in fields.getlist("files") if each]
    draft = Draft(scope, model, unix_lines(fields.get("text", "")), files)
    attached = attach(user=request.user, source=source, draft=draft)
    return render(request, "files/_chip.html", {"file": attached.file}, status=201)
