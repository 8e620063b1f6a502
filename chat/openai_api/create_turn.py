"""Create the rows of an API request: a conversation with its messages and files, and the turn that answers them.

The rows are stored so that users can read the reports. `delete_old_conversations` deletes them after some days.
"""

from collections.abc import Sequence
from datetime import timedelta
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from accounts.access.holds import without_holds
from accounts.models import User
from chat.context.types import ContextError
from chat.models import Attachment, Conversation, Message, Turn
from chat.models.conversation_state import join_line, status_of_new
from chat.models.words import title_from
from chat.openai_api.errors import invalid_request
from chat.openai_api.names import NamedModel, find_named
from chat.openai_api.request import ProgramRequest, RequestHistory, SentFile, is_picture
from chat.prompts import builder
from chat.prompts.turn_context import context_of_past_turn, with_expected_tools
from chat.turns.admission import admit, estimate_question
from chat.turns.submit import begin_answers
from files import services
from files.models import File
from llm.models import Model
from llm.providers import find_missing_parameter
from projects.models import Project
from projects.models.roles import visible_project
from workspace.models.settings import workspace_at

BATCH_CONVERSATIONS = 200  # conversations in one deletion


class TurnTarget(NamedTuple):
    """The persona or model that a request names, the model that answers, and the project."""

    named: NamedModel
    model: Model
    project: Project | None


def find_target(user: User, request: ProgramRequest, project: str | None) -> TurnTarget:
    """Return the target of a request. `project` is the id of a project.

    Raises `model_not_found` and `not_found` (404), and 400 for a parameter that the model does not support.
    """
    named = find_named(user, request.model)
    model = named.model
    options = request.options
    if options.tools and not model.tools:
        sentence = f"{model.name} cannot call tools. Leave “tools” out, or ask an admin to turn them on for it."
        raise invalid_request("tools", sentence, "unsupported_parameter")
    unsupported = find_missing_parameter(
        model.provider.protocol, options.sampling, options.response_format, options.stop
    )
    if unsupported is not None:
        sentence = f"The provider of {model.name} does not support “{unsupported}” with this value. Leave it out."
        raise invalid_request(unsupported, sentence, "unsupported_parameter")
    shown = next((file for file in request.history.files if file.shown), None)
    if shown is not None and not model.vision:
        raise invalid_request(shown.where, f"{model.name} cannot see images.", "unsupported_content")
    return TurnTarget(named, model, visible_project(user, project) if project else None)


@transaction.atomic
def start_turn(user: User, request: ProgramRequest, target: TurnTarget, files: list[File]) -> Turn:
    """Create the conversation and its turn. A worker is notified on commit.

    `files` has one row for each file of the history, in the same order. Nobody continues such a conversation, so no
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
    rows = _build_messages(conversation, history)
    question = rows[history.question]
    last = rows[-1]
    join_line(user.pk)
    tokens = estimate_question("".join(row.text for row in rows), files)
    admitted = admit(conversation, status_of_new(conversation), [target.model], tokens)
    options = request.options.as_json()
    options["sent_files"] = [
        str(file.pk) for file, sent in zip(files, history.files, strict=True) if isinstance(sent, SentFile)
    ]
    [turn] = begin_answers(conversation, question, admitted, None, below=last, options=options)
    _attach(rows, history, files)
    return turn


def _build_messages(conversation: Conversation, history: RequestHistory) -> list[Message]:
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
    """Attach the files to their messages."""
    next_files = iter(files)
    attachments = [
        Attachment(message=message, file=file, name=file.name, ordinal=number)
        for message, row in zip(messages, history.rows, strict=True)
        for number, file in enumerate(islice(next_files, len(row.files)))
    ]
    Attachment.objects.bulk_create(attachments)


def delete_old_conversations() -> None:
    """Delete old conversations of API requests, and the files that came in them and that nothing else uses.

    The workspace sets the age in days, else `settings.API_CONVERSATION_DAYS` does. With 0 days nothing is deleted.
    """
    workspace_days = workspace_at().api_conversation_days
    days = settings.API_CONVERSATION_DAYS if workspace_days is None else workspace_days
    if not days:
        return
    cutoff = timezone.now() - timedelta(days=days)
    idle = without_holds(Conversation.objects.all()).filter(
        origin=Conversation.Origin.API, state=Conversation.State.IDLE
    )
    old = idle.filter(updated__lt=cutoff)
    while batch := list(old.order_by("updated").values_list("pk", flat=True)[:BATCH_CONVERSATIONS]):
        attached = list(File.objects.filter(attachments__message__conversation__in=batch).distinct())
        sent = _sent_files(batch)
        Conversation.objects.filter(pk__in=batch).delete()
        unused = File.objects.filter(
            pk__in=[file.pk for file in attached], attachments=None, project_entries=None, uploaded_again=None
        )
        for file in without_holds(unused).select_related("owner"):
            # Requests of earlier versions do not name their files. They had images only.
            if str(file.pk) in sent or is_picture(file.name, file.sha256):
                services.delete(user=file.owner, file=file)


def _sent_files(conversations: Sequence[UUID]) -> set[str]:
    """Return the ids of the files that came in the requests of these conversations, or that their tools returned."""
    options = Turn.objects.filter(conversation__in=conversations).values_list("options__sent_files", flat=True)
    returned = Attachment.objects.filter(
        message__conversation__in=conversations, message__role=Message.Role.ASSISTANT, file__isnull=False
    )
    sent = {file for files in options for file in files or ()}
    return sent | {str(file) for file in returned.values_list("file", flat=True)}


def count_tokens(user: User, request: ProgramRequest, target: TurnTarget, files: list[File]) -> int:
    """Return the tokens of the prompt that the request would send, with its tools. Nothing is stored.

    The turn is planned as for an answer, and then rolled back. Tool servers are not asked: their last lists are used.
    Raises as `start_turn`, and `file_too_long` (400) for a file that does not fit.
    """
    with transaction.atomic():
        turn = start_turn(user, request, target, files)
        context = with_expected_tools(context_of_past_turn(turn, target.model))
        try:
            used = builder.plan(context, turn.answer.parent).prompt.report.used
        except ContextError as error:
            if "needed" not in error.extra:
                raise
            used = error.extra["needed"]
        transaction.set_rollback(True)
    return used + context.room.tools_tokens
