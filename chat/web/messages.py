"""What the templates of a conversation show: plain values, made of rows with a fixed number of queries."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings

from accounts.models import User
from chat.conversations.branches.pages import BranchView, branches_of, side_by_side
from chat.conversations.branches.services import CONTINUE
from chat.models import Attachment, Conversation, Message, SummaryJob, Turn
from chat.models.conversation_state import ChatScope
from chat.models.tree import branch, siblings, with_rows
from chat.rendering.markdown import render
from chat.rendering.references import Sources, cited
from chat.summaries.pages import SummaryView, of_branch
from chat.turns import services as turns
from core.errors import ProductError
from files.models import File
from files.services import tokens_of
from llm.models import Model
from personas.models import Persona
from personas.services import model_for

PAGE = 40  # messages of one page of a conversation


@dataclass(frozen=True, slots=True)
class TurnView:
    id: UUID
    seq: int
    status: str
    retryable: bool
    percent: int | None
    left_out: int


@dataclass(frozen=True, slots=True)
class FileView:
    """`id` is None when the file was deleted since."""

    id: UUID | None
    name: str
    token_count: int | None
    is_image: bool
    status: str


@dataclass(frozen=True, slots=True)
class MessageView:
    """`parts` are the row's parts with what a page needs: text has `blocks` (safe HTML), a tool call its `result`.

    `continues`: a question that only asks to go on. `newest`: the branch on show ends here. `beside`: the answers to
    show side by side in this one's place, itself among them. `summary`: it stands for everything up to here. `failed`:
    why the newest one could not be written. `cited`:
    how many sources it cites.
    """

    id: UUID
    role: str
    status: str
    parts: list[dict[str, Any]]
    turn: TurnView | None
    model_name: str
    error_code: str
    error_detail: str
    created: datetime
    text: str
    files: list[FileView]
    feedback: str
    continues: bool
    cited: int
    branch: BranchView | None = None
    newest: bool = False
    beside: "list[MessageView]" = field(default_factory=list)
    summary: SummaryView | None = None
    failed: SummaryJob | None = None


def message_view(message: Message, titles: Mapping[str, str] | None = None) -> MessageView:
    """`titles` of the files that have a number in the conversation, by id; they are looked up when not given."""
    known = titles_of(message.conversation) if titles is None else titles
    sources = sources_of(message, known)
    turn: Turn | None = getattr(message, "turn", None)
    assistant = message.role == Message.Role.ASSISTANT
    return MessageView(
        id=message.pk,
        role=message.role,
        status=message.status,
        parts=_parts(message.parts, sources) if assistant else [],
        turn=_turn_view(turn, message) if turn else None,
        model_name=message.model.name if message.model else "",
        error_code=message.error_code,
        error_detail=message.error_detail,
        created=message.created,
        text=message.text,
        files=[_file_view(attachment) for attachment in message.attachments.all()],
        feedback=message.feedback,
        continues=message.text == CONTINUE and not assistant,
        cited=sum(1 for _source in cited(message.text, sources)) if assistant else 0,
    )


def _file_view(attachment: Attachment) -> FileView:
    file = attachment.file
    if file is None:
        return FileView(None, attachment.name, None, False, "deleted")
    return FileView(file.pk, attachment.name, tokens_of(file=file), file.is_image, file.status)


def _turn_view(turn: Turn, message: Message) -> TurnView:
    percent = None
    if turn.context_used is not None and turn.context_limit:
        percent = min(100, math.ceil(100 * turn.context_used / turn.context_limit))
    retryable = message.status not in (Message.Status.PENDING, Message.Status.DONE)
    return TurnView(turn.pk, turn.seq, turn.status, retryable, percent, turn.context_left_out)


def titles_of(conversation: Conversation) -> dict[str, str]:
    ids = [pk for pk in conversation.documents if "/" not in pk]  # the others are addresses of pages
    return {str(pk): name for pk, name in File.objects.filter(pk__in=ids).values_list("pk", "name")}


def sources_of(message: Message, titles: Mapping[str, str]) -> Sources:
    """What the answer's citations lead to: the passages its searches found, else the whole file."""
    numbers = message.conversation.documents
    sources = Sources()
    sources.learn({"number": numbers[pk], "title": title, "file": pk} for pk, title in titles.items())
    for part in message.parts:
        sources.learn(part.get("documents", ()))
    return sources


def _parts(parts: list[dict[str, Any]], sources: Sources) -> list[dict[str, Any]]:
    results = {part["id"]: part for part in parts if part["type"] == "tool_result"}
    shown = []
    for part in parts:
        match part["type"]:
            case "text":
                shown.append({**part, "blocks": render(part["text"], sources)})
            case "tool_call":
                result = results.get(part["id"])
                found = Sources()
                found.learn(result.get("documents", ()) if result else ())
                shown.append({**turns.shown(part), "result": result, "found": list(found.values())})
            case _:
                shown.append(part)
    return shown


def branch_page(conversation: Conversation, before: Message | None = None) -> tuple[list[MessageView], UUID | None]:
    """The newest messages of the branch on show, or those above `before`; and where to go on upwards, if anywhere."""
    end = conversation.leaf if before is None else before.parent
    if end is None:
        return [], None
    messages = branch(end.pk, newest=PAGE, leaf_depth=end.depth)
    older = messages[0].pk if messages and messages[0].depth > 0 else None
    views = placed(messages, conversation, beside=before is None)
    summary, failed = of_branch(conversation)
    for index, view in enumerate(views):
        if summary is not None and view.id == summary.last:
            views[index] = replace(view, summary=summary)
    if failed is not None and before is None:
        views[-1] = replace(views[-1], failed=failed)
    return views, older


def answers_page(turns: Sequence[Turn], *, question: bool) -> list[MessageView]:
    """A new question (unless it is on the page already) and its pending answers."""
    ids = [turns[0].answer_id] + ([turns[0].user_message_id] if question else [])
    rows = list(with_rows(Message.objects.filter(pk__in=ids)).order_by("depth"))
    return placed(rows, turns[0].conversation, beside=True)


def one_message(message: Message) -> MessageView:
    return placed([message], message.conversation)[0]


def placed(messages: Sequence[Message], conversation: Conversation, *, beside: bool = False) -> list[MessageView]:
    """Messages of one branch with their places in the tree; `beside`: the last one with those to show in its scope."""
    places, last = siblings(messages), messages[-1]
    group = side_by_side(last) if beside and len(places[last.pk]) > 1 else []
    places |= {message.pk: places[last.pk] for message in group}
    branches, titles = branches_of([*messages, *group], places, conversation.leaf_id), titles_of(conversation)

    def view(message: Message) -> MessageView:
        message.conversation = conversation  # which the row would otherwise ask the database for
        newest = message.pk == conversation.leaf_id
        return replace(message_view(message, titles), branch=branches[message.pk], newest=newest)

    views = [view(message) for message in messages]
    if group:
        views[-1] = replace(views[-1], beside=[view(message) for message in group])
    return views


def choices(user: User, scope: ChatScope) -> dict[str, Any]:
    """What can be chosen at the composer, and what is chosen: the model that answered last goes on, if it still can."""
    persona = scope.persona
    leaf = scope.conversation.leaf if scope.conversation else None
    models = list(Model.objects.usable())
    chosen = next((model for model in models if leaf and model.pk == leaf.model_id), None)
    if chosen is None:
        with suppress(ProductError):
            chosen = model_for(persona)
    bundled = bool(chosen and settings.BUNDLED_MODEL_URL and chosen.provider.base_url == settings.BUNDLED_MODEL_URL)
    return {
        "models": models,
        "chosen_model": chosen,
        "personas": Persona.objects.visible_to(user),
        "chosen_persona": persona,
        "project": scope.project,
        "bundled": bundled,
    }
