"""Create the rows of an API request: a conversation with its messages and images, and the turn that answers them.

The rows are stored so that users can read the reports. `forget_old` deletes them after some days.
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
from chat.openai_api.names import NamedModel, find
from chat.openai_api.parse import CompletionRequest, Picture, RequestHistory, is_picture
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

IMAGE_TIMEOUT = 60.0  # seconds in which the images of a request must be read
IMAGE_INTERVAL = 0.05  # seconds between two queries for their status
BATCH = 200  # conversations in one deletion


class TurnTarget(NamedTuple):
    """The persona or model that a request names, the model that answers, and the project."""

    named: NamedModel
    model: Model
    project: Project | None


def target(user: User, request: CompletionRequest, project: str | None) -> TurnTarget:
    """Return the target of a request. `project` is the id of a project.

    Raises `model_not_found` and `not_found` (404), and 400 for a parameter that the model does not support.
    """
    named = find(user, request.model)
    model = named.model
    options = request.options
    if options.tools and not model.tools:
        sentence = f"{model.name} cannot call tools. Leave “tools” out, or ask an admin to switch them on for it."
        raise refused("tools", sentence, "unsupported_parameter")
    unsupported = lacking(model.provider.protocol, options.sampling, options.response_format, options.stop)
    if unsupported is not None:
        sentence = (
            f"{model.name} cannot be given “{unsupported}” with this value: its provider knows none such. Leave it out."
        )
        raise refused(unsupported, sentence, "unsupported_parameter")
    if request.history.pictures and not model.vision:
        raise refused(request.history.pictures[0].where, f"{model.name} cannot see images.", "unsupported_content")
    return TurnTarget(named, model, visible_project(user, project) if project else None)


@transaction.atomic
def start(user: User, request: CompletionRequest, target: TurnTarget, files: list[File]) -> Turn:
    """Create the conversation and its turn. A worker is notified on commit.

    `files` has one file for each picture of the history, in the same order. Nobody continues such a conversation, so no
    model is asked for a title and nothing is summarised.
    """
    history = request.history
    conversation = Conversation(
        owner=user,
        origin=Conversation.Origin.API,
        title=title_from(history.rows[history.question].parts[0]["text"]),
        titled=True,
        persona=target.named.persona,
        project=target.project,
        automatic_summaries=False,
    )
    rows = _messages(conversation, history)
    question = rows[history.question]
    last = rows[-1]
    join_line(user.pk)
    tokens = question_tokens("".join(row.text for row in rows), files)
    admitted = admit(conversation, status_of_new(conversation), [target.model], tokens)
    options = request.options.as_json()
    [turn] = begin_answers(conversation, question, admitted, None, below=last, options=options)
    _attach(rows, history, files)
    return turn


def _messages(conversation: Conversation, history: RequestHistory) -> list[Message]:
    """Return the rows of the messages. Each is the child of the previous one."""
    rows: list[Message] = []
    for depth, row in enumerate(history.rows):
        rows.append(
            Message(
                conversation=conversation,
                owner_id=conversation.owner_id,
                parent=rows[-1] if rows else None,
                role=row.role,
                parts=row.parts,
                depth=depth,
            )
        )
    return rows


def _attach(messages: list[Message], history: RequestHistory, files: list[File]) -> None:
    """Attach the files to the messages of their pictures."""
    next_files = iter(files)
    attachments = [
        Attachment(message=message, file=file, name=file.name, ordinal=number)
        for message, row in zip(messages, history.rows, strict=True)
        for number, file in enumerate(islice(next_files, len(row.pictures)))
    ]
    Attachment.objects.bulk_create(attachments)


async def files_of(user: User, pictures: Sequence[Picture]) -> list[File]:
    """Return a file that has been read for each picture, in the same order.

    Raises `invalid_image` (400), and `images_not_ready` (503) if they are not read within `IMAGE_TIMEOUT`.
    """
    files = await threaded(_stored)(user, pictures)
    try:
        async with asyncio.timeout(IMAGE_TIMEOUT):
            while any(file.unread for file in files):
                await asyncio.sleep(IMAGE_INTERVAL)
                files = await threaded(_reloaded)(files)
    except TimeoutError as error:
        sentence = "The images could not be read in time. Try again in a minute."
        raise ProductError("images_not_ready", sentence, status=503) from error
    for file, picture in zip(files, pictures, strict=True):
        if not file.is_image or file.status == File.Status.FAILED:
            sentence = f"This is not an image that models can be shown. {file.problem.english}".strip()
            raise refused(picture.where, sentence, "invalid_image")
    return files


def _stored(user: User, pictures: Sequence[Picture]) -> list[File]:
    """Return a file for each picture. An image that an earlier request sent is not stored twice.

    Programs repeat the images of a conversation in every request.
    """
    files: dict[str, File] = {}
    for picture in pictures:
        if picture.digest not in files:
            files[picture.digest] = _sent_before(user, picture) or services.upload(
                user=user, name=picture.name, content=ContentFile(picture.data)
            )
    return [files[picture.digest] for picture in pictures]


def _sent_before(user: User, picture: Picture) -> File | None:
    """Return the file of the same image from an earlier request, if any."""
    sent_before = Q(attachments__message__conversation__origin=Conversation.Origin.API)
    rows = File.objects.owned_by(user).filter(sent_before, sha256=picture.digest, status=File.Status.READY)
    return rows.filter(name=picture.name).first()


def _reloaded(files: Iterable[File]) -> list[File]:
    """Return the files as they are stored now. A deleted file counts as failed."""
    rows = File.objects.in_bulk([file.pk for file in files])
    return [rows[file.pk] if file.pk in rows else _deleted(file) for file in files]


def _deleted(file: File) -> File:
    file.status = File.Status.FAILED
    return file


def forget_old() -> None:
    """Delete old conversations of API requests, and their images that nothing else uses.

    The workspace sets the age in days, else `settings.API_CONVERSATION_DAYS` does. With 0 days nothing is deleted.
    """
    workspace_days = workspace_at().api_conversation_days
    days = settings.API_CONVERSATION_DAYS if workspace_days is None else workspace_days
    if not days:
        return
    cutoff = timezone.now() - timedelta(days=days)
    idle = free(Conversation.objects.all()).filter(origin=Conversation.Origin.API, state=Conversation.State.IDLE)
    old = idle.filter(updated__lt=cutoff)
    while batch := list(old.order_by("updated").values_list("pk", flat=True)[:BATCH]):
        images = list(File.objects.filter(attachments__message__conversation__in=batch).distinct())
        Conversation.objects.filter(pk__in=batch).delete()
        unused = File.objects.filter(
            pk__in=[file.pk for file in images], attachments=None, project_entries=None, uploaded_again=None
        )
        for file in free(unused).select_related("owner"):
            if is_picture(file.name, file.sha256):
                services.delete(user=file.owner, file=file)
