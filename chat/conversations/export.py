"""Conversations as files: Markdown of the branch on show, JSON of the whole tree, a zip of everything."""

import io
import json
import re
import zipfile
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from accounts.models import User
from chat.models import Conversation, Mark, Message, ModelCall, Turn
from chat.models.summary import marks_on
from chat.models.tree import branch_rows, with_rows
from chat.usage.services import csv_pages
from core.errors import NotFound

FORMAT = "glasshouse.conversation/1"
KINDS = {"md": "text/markdown; charset=utf-8", "json": "application/json"}
# What is said of an answer whose end is none.
ENDED = dict.fromkeys(Turn.CUT_SHORT, "Not finished") | {
    "refusal": "The model declined to answer",
    "content_filter": "Ended by the provider's content filter",
}
AT_ONCE = 20  # conversations between two pieces of the zip
_UNSAFE = re.compile(r"[^\w\- ]+")


def export(conversation: Conversation, kind: str) -> str:
    """`kind` is md or json; raises `NotFound` for another."""
    if kind not in KINDS:
        raise NotFound("kind of export")
    return markdown(conversation) if kind == "md" else as_json(conversation)


def file_name(conversation: Conversation, kind: str) -> str:
    """Safe on every system; names of two conversations never clash, as the id is part of them."""
    words = " ".join(_UNSAFE.sub(" ", conversation.title).split())[:60].strip() or "conversation"
    return f"{words} {str(conversation.pk)[-12:]}.{kind}"


def markdown(conversation: Conversation) -> str:
    """The branch on show: who said it, the names of files, the text as it was written, and what is marked."""
    marks = marks_on(conversation.pk, conversation.leaf_id).by_message
    lines = [f"# {conversation.title or 'Conversation'}", ""]
    for message in branch_rows(conversation.leaf_id).order_by("depth").iterator(500):
        who = "You" if message.role == Message.Role.USER else (message.model.name if message.model else "Answer")
        lines += [f"## {who} · {message.created:%Y-%m-%d %H:%M} UTC", ""]
        lines += [f"*File: {attachment.name}*\n" for attachment in message.attachments.all()]
        lines += [message.text, ""]
        if mark := marks.get(message.pk):
            lines += [f"*({Mark.Kind(mark).label})*", ""]
        if message.status not in (Message.Status.DONE, Message.Status.PENDING):
            lines += [f"*({message.get_status_display()})*", ""]
        elif message.finish_reason in ENDED:
            lines += [f"*({ENDED[message.finish_reason]})*", ""]
        if notice := _notice(message):
            lines += [f"*({notice})*", ""]
    return "\n".join(lines)


def as_json(conversation: Conversation) -> str:
    """The whole tree; `leaf` is the end of the branch on show, `parent` the message above."""
    marks = marks_on(conversation.pk, conversation.leaf_id).by_message
    rows = with_rows(Message.objects.filter(conversation=conversation)).order_by("depth", "id")
    body = {
        "format": FORMAT,
        "id": str(conversation.pk),
        "title": conversation.title,
        "created": conversation.created.isoformat(),
        "updated": conversation.updated.isoformat(),
        "archived": conversation.archived,
        "pinned": conversation.pinned is not None,
        "tags": [tag.name for tag in conversation.tags.all()],
        "persona": conversation.persona.name if conversation.persona else None,
        "project": conversation.project.name if conversation.project else None,
        "leaf": str(conversation.leaf_id) if conversation.leaf_id else None,
        "messages": [_message(message, marks.get(message.pk)) for message in rows.iterator(500)],
    }
    return json.dumps(body, ensure_ascii=False, indent=1)


def _message(message: Message, mark: str | None) -> dict[str, Any]:
    turn: Turn | None = getattr(message, "turn", None)
    return {
        "id": str(message.pk),
        "parent": str(message.parent_id) if message.parent_id else None,
        "role": message.role,
        "created": message.created.isoformat(),
        "status": message.status,
        "finish_reason": message.finish_reason or None,
        "model": message.model.name if message.model else None,
        "feedback": message.feedback,
        "usage": turn.usage if turn else None,
        "cost": f"{turn.cost:f}" if turn and turn.cost is not None else None,
        "files": [attachment.name for attachment in message.attachments.all()],
        "parts": message.parts,
        "mark": mark,
        "context_notice": _notice(message),
    }


def _notice(message: Message) -> str:
    """What is to be said of what the model read before it answered; empty where that was everything."""
    return message.turn.context_notice if hasattr(message, "turn") else ""


async def everything(user: User) -> AsyncIterator[bytes]:
    """A zip of all conversations, each as Markdown and JSON, written while it is sent: it is never whole anywhere."""
    async for piece in _sent(_zip(user)):
        yield piece


async def several(user: User, ids: Sequence[UUID]) -> AsyncIterator[bytes]:
    """A zip of these of the user's conversations, likewise."""
    async for piece in _sent(_zip(user, ids)):
        yield piece


async def _sent(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    while piece := await sync_to_async(_next_piece)(pieces):
        yield piece


def _next_piece(pieces: Iterator[bytes]) -> bytes:
    try:
        return next((piece for piece in pieces if piece), b"")
    finally:
        close_old_connections()


def _zip(user: User, ids: Sequence[UUID] | None = None) -> Iterator[bytes]:
    """Of the conversations with these ids; without ids of all, and with what was used."""
    sink = _Sink()
    rows = Conversation.objects.listed_for(user).select_related("persona", "project").order_by("pk")
    if ids is not None:
        rows = rows.filter(pk__in=ids)
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        last = None
        while found := list(rows.filter(pk__gt=last)[:AT_ONCE] if last else rows[:AT_ONCE]):
            for conversation in found:
                for kind in KINDS:
                    archive.writestr(f"{kind}/{file_name(conversation, kind)}", export(conversation, kind))
                yield sink.taken()
            last = found[-1].pk
        if ids is None:
            with archive.open("usage.csv", "w") as table:
                for page in csv_pages(ModelCall.objects.visible_to(user)):
                    table.write(page.encode())
                    yield sink.taken()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """Takes what the zip writes, until it is fetched. It cannot seek, so the zip never goes back."""

    def __init__(self) -> None:
        self._written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._written += data
        return len(data)

    def taken(self) -> bytes:
        piece, self._written = bytes(self._written), bytearray()
        return piece
