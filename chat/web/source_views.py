"""What stands behind an answer: its sources as a panel, one of them as a preview, and its text as it was written."""

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from accounts.access.sessions import SignedInRequest as Request
from chat.models.conversation_state import visible_conversation, visible_message
from chat.web import sources


@require_GET
def of_answer(request: Request, pk: UUID) -> HttpResponse:
    message = visible_message(request.user, pk)
    found = sources.of_answer(request.user, message)
    turn = getattr(message, "turn", None)
    return _panel(request, {"sources": found, "message": message, "turn": turn, "conversation": message.conversation})


@require_GET
def of_conversation(request: Request, pk: UUID) -> HttpResponse:
    conversation = visible_conversation(request.user, pk)
    found = sources.of_conversation(request.user, conversation)
    return _panel(request, {"sources": found, "conversation": conversation})


@require_GET
def preview(request: Request, pk: UUID, number: int) -> HttpResponse:
    """The card that a citation shows when it is pointed at or reached."""
    source = sources.one_source(request.user, visible_message(request.user, pk), number)
    response = render(request, "chat/_source.html", {"source": source})
    response["Cache-Control"] = "private, max-age=300"  # the reader may point at it again and again
    return response


@require_GET
def as_written(request: Request, pk: UUID) -> HttpResponse:
    """The message's text in the Markdown in which it was written, to copy."""
    return HttpResponse(visible_message(request.user, pk).text, content_type="text/markdown; charset=utf-8")


def _panel(request: Request, context: dict[str, object]) -> HttpResponse:
    return render(request, "chat/_sources.html" if request.htmx else "chat/sources.html", context)
