"""Why no prompt can be made (context.md, sections 3 and 8)."""

from typing import Any

from llm.errors import ProductError


class ContextError(ProductError):
    """`code` is `no_user_message`, `file_too_long` or `context_too_long`; `extra` has the numbers behind `detail`."""

    def __init__(self, code: str, detail: str, **extra: Any) -> None:
        super().__init__(code, detail, status=422, **extra)


def no_user_message() -> ContextError:
    return ContextError("no_user_message", "There is nothing to answer: write a message first.")


def file_too_long(file_id: str, title: str, *, tokens: int, room: int) -> ContextError:
    return ContextError(
        "file_too_long",
        f"“{title or file_id}” is too long: it has {tokens:,} tokens and there is room for {max(room, 0):,}. "
        "Remove it from the message, or add it to a project and search it.",
        file=file_id,
        title=title,
        tokens=tokens,
        room=room,
    )


def context_too_long(sections: dict[str, int], *, limit: int) -> ContextError:
    """`sections`: what each section costs in tokens, overhead included."""
    needed = sum(sections.values())
    largest = max(sections, key=lambda name: sections[name])
    return ContextError(
        "context_too_long",
        f"What must be sent has {needed:,} tokens and the model takes {max(limit, 0):,}. "
        f"The largest part is {_PARTS[largest]} with {sections[largest]:,}: shorten it, or choose a model with a "
        "larger window.",
        sections=sections,
        needed=needed,
        limit=limit,
    )


_PARTS = {
    "system": "the system prompt",
    "tasks": "the list of tasks",
    "summary": "the summary",
    "persona": "the persona's prompt",
    "project_files": "the project's files",
    "file_listing": "the list of files",
    "file": "the attached files",
    "current": "this message and its tool results",
    "reminder": "the reminder",
}
