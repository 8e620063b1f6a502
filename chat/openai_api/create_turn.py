"""A request's rows: a conversation of its own with the given messages and images, and the turn that answers them.

They are kept for a while, for their reports, and then forgotten.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import islice
from typing import NamedTuple

from django.conf import settings
from django.core.files.base import ContentFile
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts.access.holds import free
from accounts.models import User
from chat.models import Attachment, Conversation, Message, Turn
from chat.models.conversation_state import join_line, status_of_new
from chat.models.words import title_from
from chat.openai_api.errors import refused
from chat.openai_api.names import Offered, find
from chat.openai_api.parse import History, Picture, Wanted, is_picture
from chat.realtime.event_stream import threaded
from chat.turns.admission import admit, question_tokens
from chat.turns.submit import begin_answers
from core.errors import ProductError
from files import services
from files.models import File
from llm.models import Model
from llm.providers import lacking
from projects.models import Project
from projects.models.roles import visible_project
from workspace.models.settings import workspace_at

PATIENCE, LOOK_AGAIN = 60.0, 0.05  # seconds
BATCH = 200  # conversations forgotten at once


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
    options = wanted.options
    unheard = lacking(model.provider.protocol, options.sampling, options.response_format, options.stop)
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
    conversation = Conversation(
        owner=user,
        origin=Conversation.Origin.API,
        title=title_from(history.rows[history.question].parts[0]["text"]),
        titled=True,
        persona=asked.offered.persona,
        project=asked.project,
        automatic_summaries=False,
    )
    rows = _messages(conversation, history)
    question, last = rows[history.question], rows[-1]
    options = wanted.options.as_json()
    join_line(user.pk)
    given = question_tokens("".join(row.text for row in rows), files)
    admitted = admit(conversation, status_of_new(conversation), [asked.model], given)
    [turn] = begin_answers(conversation, question, admitted, None, below=last, options=options)
    _attach(rows, history, files)
    return turn


def _messages(conversation: Conversation, history: History) -> list[Message]:
    rows: list[Message] = []
    for depth, row in enumerate(history.rows):
        parent = rows[-1] if rows else None
        whose = {"conversation": conversation, "owner_id": conversation.owner_id}
        rows.append(Message(**whose, parent=parent, role=row.role, parts=row.parts, depth=depth))
    return rows


def _attach(messages: list[Message], history: History, files: list[File]) -> None:
    waiting = iter(files)
    attached = [
        Attachment(message=message, file=file, name=file.name, ordinal=number)
        for message, row in zip(messages, history.rows, strict=True)
        for number, file in enumerate(islice(waiting, len(row.pictures)))
    ]
    Attachment.objects.bulk_create(attached)


async def files_of(user: User, pictures: Sequence[Picture]) -> list[File]:
    """A readable file for each picture, in their order.

    Raises `invalid_image` for what is none, and `images_not_ready` (503) when they cannot be read in time.
    """
    files = await threaded(_stored)(user, pictures)
    try:
        async with asyncio.timeout(PATIENCE):
            while any(file.unread for file in files):
                await asyncio.sleep(LOOK_AGAIN)
                files = await threaded(_again)(files)
    except TimeoutError as error:
        sentence = "The images could not be read in time. Try again in a minute."
        raise ProductError("images_not_ready", sentence, status=503) from error
    for file, picture in zip(files, pictures, strict=True):
        if not file.is_image or file.status == File.Status.FAILED:
            sentence = f"This is not an image that models can be shown. {file.problem.english}".strip()
            raise refused(picture.where, sentence, "invalid_image")
    return files


def _stored(user: User, pictures: Sequence[Picture]) -> list[File]:
    """A program sends an image again with every request: one that its last requests had is not stored twice."""
    made: dict[str, File] = {}
    for picture in pictures:
        if picture.digest not in made:
            made[picture.digest] = _known(user, picture) or services.upload(
                user=user, name=picture.name, content=ContentFile(picture.data)
            )
    return [made[picture.digest] for picture in pictures]


def _known(user: User, picture: Picture) -> File | None:
    sent_before = Q(attachments__message__conversation__origin=Conversation.Origin.API)
    rows = File.objects.owned_by(user).filter(sent_before, sha256=picture.digest, status=File.Status.READY)
    return rows.filter(name=picture.name).first()


def _again(files: Iterable[File]) -> list[File]:
    rows = File.objects.in_bulk([file.pk for file in files])
    return [rows[file.pk] if file.pk in rows else _gone(file) for file in files]


def _gone(file: File) -> File:
    file.status = File.Status.FAILED
    return file


def forget_old() -> None:
    """Removes those that are older than the workspace or `settings.API_CONVERSATION_DAYS` say, with the images that
    came with them alone."""
    kept = workspace_at().api_conversation_days
    days = settings.API_CONVERSATION_DAYS if kept is None else kept
    if not days:
        return
    before = timezone.now() - timedelta(days=days)
    ended = free(Conversation.objects.all()).filter(origin=Conversation.Origin.API, state=Conversation.State.IDLE)
    old = ended.filter(updated__lt=before)
    while batch := list(old.order_by("updated").values_list("pk", flat=True)[:BATCH]):
        images = list(File.objects.filter(attachments__message__conversation__in=batch).distinct())
        Conversation.objects.filter(pk__in=batch).delete()
        unused = File.objects.filter(pk__in=[file.pk for file in images], attachments=None, project_entries=None)
        for file in free(unused).select_related("owner"):
            if is_picture(file.name, file.sha256):
                services.delete(user=file.owner, file=file)
