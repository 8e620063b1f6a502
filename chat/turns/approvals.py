"""The calls of one turn that wait for a person. The first decision counts, be it a person's or that time is up."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from django.conf import settings

from chat.models import Turn
from chat.realtime import event_stream
from chat.realtime.events import Approval, EventType, fold
from chat.tools.toolbox import Toolbox
from chat.turns.emitter import Answer
from core.errors import NotFound, ProductError
from llm.types.tools import Tool, ToolOutput, run_tool


class Approvals:
    """Asks, in the answer itself, and waits. `tell`: there is news in the answer."""

    def __init__(self, answer: Answer, tell: Callable[[], None]) -> None:
        self._answer, self._tell = answer, tell

    def guarded(self, box: Toolbox) -> dict[str, Tool]:
        """The box's tools by name; those that need it wait for a decision."""
        seconds = settings.APPROVAL_SECONDS
        return {
            name: Approved(tool, self.decide, waits=seconds) if name in box.approval else tool
            for name, tool in box.tools.items()
        }

    async def decide(self, name: str, arguments: Mapping[str, Any]) -> Approval:
        part, call = self._answer.begun(name, arguments)
        self._say(part, call, Approval.WAITING)
        decision = await event_stream.wait_for_decision(self._answer.turn, call, settings.APPROVAL_SECONDS)
        self._say(part, call, decision)
        return decision

    def _say(self, part: int, call: str, state: Approval) -> None:
        self._answer.emit(EventType.TOOL_CALL_APPROVAL, part=part, call=call, state=state)
        self._tell()


async def parts_of(turn: Turn) -> list[dict[str, Any]]:
    """The answer's parts as its readers have them now: the stream is up to a second ahead of the row.

    `turn` comes with its `answer`, from one query: `seq` says what these very parts hold.
    """
    parts: list[dict[str, Any]] = list(turn.answer.parts)
    for event in await event_stream.read(turn.pk, turn.seq):
        fold(parts, event.type, event.payload)
    return parts


def asking(parts: list[dict[str, Any]], call: str) -> dict[str, Any]:
    """The part of a call that a person was asked about. Raises `NotFound`."""
    for part in parts:
        if part["type"] == "tool_call" and part["id"] == call and "approval" in part:
            return part
    raise NotFound("call")


def require_waiting(turn: Turn, parts: list[dict[str, Any]], call: str) -> None:
    """Raises `not_found` for a call that asked nobody, `not_waiting` and `already_decided` (409) for others."""
    if asking(parts, call)["approval"] != Approval.WAITING:
        raise already_decided()
    if turn.status not in Turn.LIVE:
        raise ProductError(
            "not_waiting", "The answer has ended, so this call does not run any more. Try again for a new one.",
            status=409,
        )  # fmt: skip


def already_decided() -> ProductError:
    return ProductError("already_decided", "This call was decided already. Reload to see how.", status=409)


def shown(part: dict[str, Any]) -> dict[str, Any]:
    """A tool call's part for a template: with `asked`, what it is to be called with, while somebody has to decide."""
    waiting = part.get("approval") == Approval.WAITING
    return {**part, "asked": _readable(part["arguments"])} if waiting else part


def _readable(arguments: str) -> list[tuple[str, str]]:
    """By name: texts as they are, everything else as JSON."""
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return [("", arguments)]
    if not isinstance(given, dict):
        return [("", arguments)]
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in given.items()
    ]


NOT_ALLOWED = "The user did not allow this call."

# Given a tool's name and the arguments of a call of it, what has been decided.
Decide = Callable[[str, Mapping[str, Any]], Awaitable[Approval]]


class Approved:
    """A tool that runs only when a person has allowed the call. Its own caps hold from then on: waiting is no running.

    `waits`: seconds after which `decide` gives up.
    """

    def __init__(self, tool: Tool, decide: Decide, *, waits: float) -> None:
        self._tool, self._decide = tool, decide
        self.definition = tool.definition
        self.timeout = waits + tool.timeout + 60.0  # never the first to end: both have time limits of their own
        self.max_characters = 2 * tool.max_characters  # as the tool's own cap adds a line

    def label(self, arguments: Mapping[str, Any]) -> str:
        return self._tool.label(arguments)

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        if await self._decide(self.definition.name, arguments) != Approval.ALLOWED:
            return ToolOutput(NOT_ALLOWED, error=True)
        return await run_tool(self._tool, arguments)
