"""A request's rows: a conversation of its own with the given messages, and the turn that answers them."""

from itertools import islice
from typing import NamedTuple

from django.db import transaction

from accounts.models import User
from chat.models import Attachment, Conversation, Message, Turn
from chat.models.conversation import title_from
from chat.openai_api.errors import refused
from chat.openai_api.messages import History
from chat.openai_api.names import Offered, find
from chat.openai_api.parse import Wanted
from chat.turns.submit import begin_answers
from files.models import File
from llm.models import Model
from llm.providers import lacking
from projects.models import Project
from projects.services import visible_project


class Asked(NamedTuple):
    """Who is asked, and where."""

    offered: Offered
    model: Model
    project: Project | None


def asked(user: User, wanted: Wanted, project: str | None) -> Asked:
    """`project` is an id. Raises `model_not_found`, `not_found`, and 400 for what the model is not able to do."""
    offered = find(user, wanted.model)
    model = offered.model
    if wanted.options.tools and not model.tools:
        sentence = f"{model.name} cannot call tools. Leave “tools” out, or ask an admin to switch them on for it."
        raise refused("tools", sentence, "unsupported_parameter")
    unheard = lacking(model.provider.kind, wanted.options.sampling, wanted.options.response_format)
    if unheard is not None:
        sentence = (
            f"{model.name} cannot be given “{unheard}” with this value: its provider knows none such. Leave it out."
        )
        raise refused(unheard, sentence, "unsupported_parameter")
    if wanted.history.pictures and not model.vision:
        raise refused(wanted.history.pictures[0].where, f"{model.name} cannot see images.", "unsupported_content")
    return Asked(offered, model, visible_project(user, project) if project else None)


@transaction.atomic
def start(user: User, wanted: Wanted, asked: Asked, files: list[File]) -> Turn:
    """`files` are those of the history's pictures, in their order. On commit a worker is told.

    Nobody reads these conversations on: no model is asked for a title, and none is summarised.
    """
    history = wanted.history
    conversation = Conversation.objects.create(
        owner=user,
        origin=Conversation.Origin.API,
        title=title_from(history.rows[history.question].parts[0]["text"]),
        titled=True,
        persona=asked.offered.persona,
        project=asked.project,
        automatic_summaries=False,
    )
    rows = _messages(conversation, history)
    _attach(rows, history, files)
    question, last = rows[history.question], rows[-1]
    options = wanted.options.as_json()
    [turn] = begin_answers(conversation, question, [asked.model], None, below=last, options=options)
    return turn


def _messages(conversation: Conversation, history: History) -> list[Message]:
    rows: list[Message] = []
    for depth, row in enumerate(history.rows):
        parent = rows[-1] if rows else None
        rows.append(Message(conversation=conversation, parent=parent, role=row.role, parts=row.parts, depth=depth))
    return Message.objects.bulk_create(rows)


def _attach(messages: list[Message], history: History, files: list[File]) -> None:
    waiting = iter(files)
    attached = [
        Attachment(message=message, file=file, name=file.name, ordinal=number)
        for message, row in zip(messages, history.rows, strict=True)
        for number, file in enumerate(islice(waiting, len(row.pictures)))
    ]
    Attachment.objects.bulk_create(attached)
