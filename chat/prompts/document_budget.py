"""Compute how many tokens of documents a message may carry, and refuse files above this limit.

The rule is in docs/develop/context.md, “Document budget”.
"""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from accounts.models import User
from chat.context.types import ContextError, DocumentBudget, Reserves, document_budget
from chat.models import Summary
from chat.models.conversation_state import ChatScope
from chat.models.summary import in_force
from chat.prompts import builder
from chat.prompts.turn_context import TurnContext, context_of_draft
from chat.tools.toolbox import with_file_tools
from core.sentences import Sentence
from files.models import File
from files.services import get_token_count


def summary_in(scope: ChatScope) -> Summary | None:
    """Return the active summary of the shown branch, or None."""
    conversation = scope.conversation
    if conversation is None or not conversation.leaf_id:
        return None
    return in_force(conversation.pk, conversation.leaf_id)


def budget(base: TurnContext, scope: ChatScope) -> DocumentBudget:
    """Return the document budget of a chat. Selecting, showing and refusing files all use this same limit.

    It counts today's tasks, the summary, and the tools that a message with a file has. It does not count the tools of a
    calling program, nor the project's files, which make room for the files of a message.
    """
    return budget_of(context_of_draft(base=base, scope=scope, text="", files=()), scope, summary_in(scope))


def budget_of(context: TurnContext, scope: ChatScope, summary: Summary | None) -> DocumentBudget:
    """Return the document budget of a turn with this context and summary."""
    if context.model.tools:
        context = replace(context, toolbox=with_file_tools(context.toolbox, scope, context.user))
    profile = context.profile
    room = context.room
    prompts = builder.required_texts(context, summary)
    reserves = Reserves(
        reserved_output=room.reserved_output,
        expected_user=profile.expected_user,
        buffer=room.buffer,
        tools_tokens=room.tools_tokens,
        ui_share=profile.ui_share,
        select_margin=profile.select_margin,
    )
    documents = document_budget(room.window, prompts, reserves)
    messages = len(prompts) + 2  # plus the question and the message of its files
    fitting = room.input_limit - sum(prompts) - profile.expected_user - messages * profile.message_overhead
    return replace(documents, selectable_up_to=max(0, min(documents.selectable_up_to, fitting)))


def chosen_files(*, user: User, ids: Sequence[UUID]) -> list[File]:
    """Return the files with these ids that the user may see, in the order of `ids`."""
    if not ids:
        return []
    files = {file.pk: file for file in File.objects.visible_to(user).filter(pk__in=ids)}
    return [files[pk] for pk in ids if pk in files]


def document_tokens(file: File) -> int | None:
    """Return the tokens of the document budget that a file uses, None while unknown. An image uses none."""
    size = get_token_count(file=file)
    return 0 if size is not None and file.is_image else size


def refuse_over_line(files: Sequence[File], allowed: DocumentBudget) -> None:
    """Refuse the first file that may not be selected. Raises `file_not_ready`, `file_failed` or `files_too_long`."""
    selected: list[int] = []
    for file in files:
        size = document_tokens(file)
        if file.status == File.Status.FAILED:
            raise ContextError(
                "file_failed",
                Sentence(
                    "“{name}” could not be read: {error} Remove it from the message.", name=file.name, error=file.error
                ),
            )
        if size is None:
            raise ContextError(
                "file_not_ready",
                Sentence("“{name}” is still being read. Send the message in a moment.", name=file.name),
            )
        if not allowed.accepts(size, selected):
            room = allowed.selectable_up_to
            raise ContextError(
                "files_too_long",
                Sentence(
                    "“{name}” does not fit: it makes the files too long. Remove it or another file; in a project "
                    "it can be searched.",
                    name=file.name,
                ),
                file=str(file.pk),
                over=sum(selected) + size - room,
                limit=room,
            )
        selected.append(size)
