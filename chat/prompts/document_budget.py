"""How many tokens of documents a message may carry, and who goes over it.

The rule: docs/develop/context.md, “Files and projects”.
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
from files.services import tokens_of


def summary_in(scope: ChatScope) -> Summary | None:
    found = scope.conversation
    return in_force(found.pk, found.leaf_id) if found is not None and found.leaf_id else None


def budget(base: TurnContext, scope: ChatScope) -> DocumentBudget:
    """How many tokens of documents may be selected (docs/develop/context.md, “Files and projects”).

    The same line for whoever selects, shows and refuses: with the tools that there are once a file is attached, today's
    tasks and the summary; without those that a calling program brings along. Files of a project give way.
    """
    return line_of(context_of_draft(base=base, scope=scope, text="", files=()), scope, summary_in(scope))


def line_of(context: TurnContext, scope: ChatScope, summary: Summary | None) -> DocumentBudget:
    if context.model.tools:
        context = replace(context, toolbox=with_file_tools(context.toolbox, scope, context.user))
    profile, room, prompts = context.profile, context.room, builder.required_texts(context, summary)
    reserves = Reserves(
        reserved_output=room.reserved_output,
        expected_user=profile.expected_user,
        buffer=room.buffer,
        tools_tokens=room.tools_tokens,
        ui_share=profile.ui_share,
        select_margin=profile.select_margin,
    )
    found = document_budget(room.window, prompts, reserves)
    messages = len(prompts) + 2  # with the question, and the files above it
    fitting = room.input_limit - sum(prompts) - profile.expected_user - messages * profile.message_overhead
    return replace(found, selectable_up_to=max(0, min(found.selectable_up_to, fitting)))


def chosen_files(*, user: User, ids: Sequence[UUID]) -> list[File]:
    """The person's files of these ids, in the order of the ids."""
    if not ids:
        return []
    found = {file.pk: file for file in File.objects.visible_to(user).filter(pk__in=ids)}
    return [found[pk] for pk in ids if pk in found]


def counted(file: File) -> int | None:
    """What a file takes of the document budget, None while it is unknown. An image is no document."""
    size = tokens_of(file=file)
    return 0 if size is not None and file.is_image else size


def refuse_over_line(files: Sequence[File], allowed: DocumentBudget) -> None:
    """Raises `file_not_ready`, `file_failed` or `files_too_long` for the first file that may not be selected."""
    selected: list[int] = []
    for file in files:
        size = counted(file)
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
