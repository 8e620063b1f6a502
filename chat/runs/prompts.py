"""What a run says: to the model, as messages of the run's conversation, and to people."""

from projects.models.task import Task

DRAFT = (
    "Draft its checklist now: call draft_checklist once, with the items in the order in which they are to be done. "
    "Each item is so small that you can complete it in one go with the tools you have. Then say in a sentence or two "
    "what you plan. Do not begin the work."
)
BREAKPOINTS = (
    "Put a breakpoint on each item before which the user has to confirm something or to give you something, and say in "
    "“needs” what that is."
)
ITEM = (
    "Do this item now, and only this one. When it is complete, call mark_item. If you cannot go on without the user, "
    "call ask_user and end your answer."
)
DRAFT_AGAIN = "{code} has no checklist yet. Call draft_checklist with its items, or say what you lack for it."
ITEM_AGAIN = "{code} is not marked yet. If it is complete, call mark_item now; else say what is missing."

DRAFT_UNREAD = (
    "The model's server did not read the whole prompt from which this checklist was drafted, so something may be "
    "missing in it. Look at it, add what is missing, then start."
)
NO_CHECKLIST = "There is no checklist. Try again, or write its items yourself and then start."
UNFINISHED = (
    "The model was asked twice about {code} and did not mark it as done. Answer what it lacks, tick the item yourself, "
    "or try again."
)
INTERRUPTED = (
    "The server stopped {tries} times in the middle of {code}. Try again; tell your admin if it happens again."
)
GONE = "The messages of this step were deleted. Try again to do it anew."
STOPPED = "You stopped it. Try again goes on where it was."
ANSWER_STOPPED = "You stopped the answer, so the run stopped too. Try again goes on where it was."
CONVERSATION_DELETED = "Its conversation was deleted. Restore it, then try again."
TASK_ENDED = "{code} is {status}, so there is nothing more to do here."
TAKEN_OVER = "{code} is yours now, not the model's. Make it a model or hybrid task to go on."
CAP = (
    "The run has used {used}, the most that it may. Do what is left yourself, or have an admin raise the cap in the "
    "budget profile “{profile}” and try again."
)


def draft(task: Task, *, again: bool, said: str) -> str:
    """The message that asks for a checklist; `said` is what the user answered before."""
    if again:
        return DRAFT_AGAIN.format(code=f"@{task.code}")
    hybrid = BREAKPOINTS if task.archetype == Task.Archetype.HYBRID else ""
    return _joined(said, f"Task @{task.code}:", task.title, task.notes, DRAFT, hybrid)


def item(row: Task, *, again: bool, said: str) -> str:
    """The message that asks for one item. It mentions the task, which is so in the prompt whatever its day."""
    if again:
        return ITEM_AGAIN.format(code=f"@{row.code}")
    return _joined(said, f"Item @{row.code}:", row.title, row.notes, ITEM)


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
