"""Texts of runs: messages to the model in the run's conversation, and sentences for people."""

from django.utils.translation import gettext_noop

from personas.texts import Texts
from projects.planner.models.task import Task

DRAFT_UNREAD = gettext_noop(
    "The model's server did not read the whole prompt from which this checklist was drafted, so something may be "
    "missing in it. Look at it, add what is missing, then start."
)
NO_CHECKLIST = gettext_noop("There is no checklist. Try again, or write its items yourself and then start.")
PROPOSED = "your word: a model has written this item elsewhere"
UNFINISHED = gettext_noop(
    "The model was asked twice about {code} and did not mark it as done. Send the missing information, tick the item "
    "yourself, or try again."
)
INTERRUPTED = gettext_noop(
    "The server stopped {tries} times in the middle of {code}. Try again; tell your admin if it happens again."
)
MESSAGES_DELETED = gettext_noop("The messages of this step were deleted. Choose “Try again” to repeat the step.")
STOPPED = gettext_noop("You stopped it. “Try again” continues it.")
ANSWER_STOPPED = gettext_noop("You stopped the answer, so the run stopped, too. “Try again” continues it.")
CONVERSATION_DELETED = gettext_noop("Its conversation was deleted. Restore it, then try again.")
TASK_ENDED = gettext_noop("{code} is {status}, so the run has nothing more to do.")
TAKEN_OVER = gettext_noop("{code} is now your own task. Make it a model or hybrid task to continue.")
CAP = gettext_noop(
    "The run has used {used}, which is its limit. Do the rest yourself, or have an admin raise the limit in the "
    "budget profile “{profile}” and try again."
)


def draft_message(task: Task, texts: Texts, *, again: bool, reply: str) -> str:
    """Return the message that asks for a checklist. `reply`: the user's answer to the previous question."""
    code = f"@{task.code}"
    if again:
        return texts.fill("run_draft_again", code=code)
    hybrid = texts["run_breakpoints"] if task.archetype == Task.Archetype.HYBRID else ""
    return _join(reply, texts.fill("run_draft", code=code, task=_join(task.title, task.notes)), hybrid)


def item_message(row: Task, texts: Texts, *, again: bool, reply: str) -> str:
    """Return the message that asks for one item. Its mention puts the task into the prompt, whatever the task's day."""
    code = f"@{row.code}"
    if again:
        return texts.fill("run_item_again", code=code)
    return _join(reply, texts.fill("run_item", code=code, item=_join(row.title, row.notes)))


def _join(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
