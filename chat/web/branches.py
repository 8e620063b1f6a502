"""Serve the actions on a message: its menu, editing, forking, switching, continuing, deleting, marks, feedback."""

from urllib.parse import urlencode
from uuid import UUID, uuid4

from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST
from django_htmx.http import trigger_client_event

from accounts.access.sessions import SignedInRequest as Request
from chat.conversations import branches, marks
from chat.conversations.feedback import give_feedback
from chat.conversations.forking import fork_conversation
from chat.models import Conversation, Message, Turn
from chat.models.conversation_state import visible_message
from chat.models.summary import marks_on
from chat.web.conversation import turns_response
from chat.web.messages import attached_files
from core.errors import ProductError
from core.requests import identifier, with_row
from core.text import unix_lines


@with_row(visible_message, "GET")
def menu(request: Request, message: Message) -> HttpResponse:
    """Show the less frequent actions on a message: as a menu, or without scripts as a page."""
    conversation = message.conversation
    context = {
        "message": message,
        "conversation": conversation,
        "mark": marks_on(conversation.pk, conversation.leaf_id).by_message.get(message.pk),
        "shortens": branches.can_be_shortened(message) and message.finish_reason not in Turn.DECLINED,
        "idle": conversation.state == Conversation.State.IDLE,
    }
    return render(request, "chat/_message_menu.html" if request.htmx else "chat/message_menu.html", context)


@with_row(visible_message, "GET", "POST")
def edit(request: Request, message: Message) -> HttpResponse:
    """Show the form to edit a message, in its place or on a separate page. A POST stores the new version."""
    if request.method == "GET":
        return _form(request, message)
    text = unix_lines(request.POST.get("text", ""))
    try:
        if message.role == Message.Role.ASSISTANT:
            version = branches.edit_answer(user=request.user, message=message, text=text)
            return _redirect_to(version.conversation_id, version.pk)
        key = request.POST.get("key", "")[:100] or None
        branches.edit_question(user=request.user, message=message, text=text, key=key)
    except ProductError as error:
        problem = error
        return _form(request, message, error.status, problem=problem, draft=request.POST.get("text", ""))
    return redirect("chat:conversation", message.conversation_id)


@with_row(visible_message)
def fork(request: Request, message: Message) -> HttpResponse:
    """Copy the conversation, down to this message, into a new one, and open it."""
    conversation = fork_conversation(user=request.user, message=message)
    return _redirect_to(conversation.pk, conversation.leaf_id)


@with_row(visible_message)
def choose(request: Request, message: Message) -> HttpResponse:
    branches.choose_branch(user=request.user, message=message)
    return _redirect_to(message.conversation_id, message.pk)


@with_row(visible_message)
def go_on(request: Request, message: Message) -> HttpResponse:
    turns = branches.continue_answer(user=request.user, message=message)
    return turns_response(request, message.conversation, turns, question=True)


@with_row(visible_message)
def shorten(request: Request, message: Message) -> HttpResponse:
    turns = branches.shorten_answer(user=request.user, message=message)
    return _redirect_to(message.conversation_id, turns[0].answer_id)


@with_row(visible_message)
def delete(request: Request, message: Message) -> HttpResponse:
    """Delete a message. The page then says what was deleted and offers to restore it."""
    branches.delete_message(user=request.user, message=message)
    return _redirect_to(message.conversation_id, message.parent_id, deleted_message=message.pk)


@require_POST
def restore(request: Request, pk: UUID) -> HttpResponse:
    message = branches.restore_message(user=request.user, pk=pk)
    return _redirect_to(message.conversation_id, message.pk)


@with_row(visible_message)
def feedback(request: Request, message: Message) -> HttpResponse:
    """Store a vote, or with `why` its reasons and comment. A new vote asks for them."""
    explains = "why" in request.POST
    give_feedback(
        user=request.user,
        message=message,
        feedback=request.POST.get("feedback", ""),
        reasons=request.POST.getlist("reason") if explains else None,
        comment=request.POST.get("comment", "") if explains else None,
    )
    if request.htmx:
        asks = not explains and bool(message.feedback)
        return render(request, "chat/_feedback.html", {"message": message, "asks": asks})
    return _redirect_to(message.conversation_id, message.pk)


@with_row(visible_message)
def mark(request: Request, message: Message) -> HttpResponse:
    """Pin or exclude a turn, exclude one file of it, or remove the mark. The page then refreshes its plan."""
    new_mark = request.POST.get("mark") or None
    file = request.POST.get("file")
    if file:
        marks.mark_file(user=request.user, message=message, file=identifier(file, "file"), mark=new_mark)
    else:
        marks.mark_turn(user=request.user, message=message, mark=new_mark)
    if request.htmx:
        return trigger_client_event(HttpResponse(status=204), "markchange", {"message": str(message.pk)})
    return _redirect_to(message.conversation_id, message.pk)


def _form(request: Request, message: Message, status: int = 200, **more: object) -> HttpResponse:
    context = {
        "message": message,
        "text": "" if message.files_alone else message.text,
        "is_answer": message.role == Message.Role.ASSISTANT,
        "files": attached_files(message),
        "conversation": message.conversation,
        "key": uuid4().hex,
        **more,
    }
    return render(request, "chat/_edit.html" if request.htmx else "chat/edit.html", context, status=status)


def _redirect_to(
    conversation: UUID, message: UUID | None, *, deleted_message: UUID | None = None
) -> HttpResponseRedirect:
    """Redirect to the conversation at a message, so that switching branches does not lose the place."""
    fields = {"deleted_message": deleted_message, "at": message}
    query = urlencode({name: value for name, value in fields.items() if value})
    place = f"#m-{message}" if message else ""
    query = f"?{query}" if query else ""
    return HttpResponseRedirect(reverse("chat:conversation", args=[conversation]) + query + place)
