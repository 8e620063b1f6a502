"""Define the interface of tools, and run a tool under its limits."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from core.json_types import JsonObject
from core.sentences import Sentence
from core.sound import replace_unstorable
from llm.types.forms import FormAnswer, PersonAsker, ToolQuestion
from llm.types.model_call import ResultFile, StoredResult, ToolCall, ToolDefinition

MAX_ARGUMENTS = 65_536  # characters of JSON; only a malfunctioning model writes more


@dataclass(frozen=True, slots=True)
class ToolFile:
    """A file that a tool returns. The text of the output names it.

    `image`: the tool says that it is an image. `text_included`: the text of the output contains the file's text.
    """

    name: str
    content: bytes = field(repr=False)
    image: bool = False
    text_included: bool = False


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """Output of a tool. The model sees `text`; the page shows `data`, which has ids, links, pages and offsets.

    * `arguments`: the arguments that the tool used, if they differ from the model's, as with expanded queries. The
      history stores them instead of the model's.
    * `full_text`: the full text, in which a model may continue reading if `text` is shortened; empty if the model can
      call the tool again instead.
    * `partial`: the tool read only the beginning of a longer source.
    * `result`: the sizes and the storage id, if `text` was shortened.
    * `notes`: sentences for people, which go into the report.
    * `tool_files`: files that the tool returned. The caller stores them, and sets `files`.
    """

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    error: bool = False
    arguments: Mapping[str, Any] | None = None
    full_text: str = ""
    partial: bool = False
    result: StoredResult | None = None
    notes: tuple[Sentence, ...] = ()
    tool_files: tuple[ToolFile, ...] = ()
    files: tuple[ResultFile, ...] = ()


class Tool(Protocol):
    """A tool that a model may call. `timeout` is in seconds."""

    definition: ToolDefinition
    timeout: float

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        """Return a description of the call for people: "Searching 2 files"."""
        ...

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput: ...


ProgressReporter = Callable[[str], None]
_reporter: ContextVar[ProgressReporter | None] = ContextVar("progress reporter", default=None)


@contextmanager
def reporting_progress(report: ProgressReporter) -> Iterator[None]:
    """Pass the progress of the tools that this task runs within the block to `report`, which shows it to people."""
    token = _reporter.set(report)
    try:
        yield
    finally:
        _reporter.reset(token)


def progress_reporter() -> ProgressReporter:
    """Return the function to which the running tool reports its progress. Outside of a turn it does nothing."""
    return _reporter.get() or (lambda text: None)


_asker: ContextVar[PersonAsker | None] = ContextVar("person asker", default=None)
_limit: ContextVar[asyncio.Timeout | None] = ContextVar("time limit", default=None)


@contextmanager
def asking_person(ask: PersonAsker | None) -> Iterator[None]:
    """Let the tools that this task runs within the block ask the person with a form. `ask`: None forbids it."""
    token = _asker.set(ask)
    try:
        yield
    finally:
        _asker.reset(token)


def person_asker() -> PersonAsker | None:
    """Return the function with which the running tool asks the person; None if nobody can be asked.

    The tool's time limit is paused while it waits for the person.
    """
    ask = _asker.get()
    limit = _limit.get()
    if ask is None:
        return None

    async def ask_without_limit(form: ToolQuestion) -> FormAnswer:
        deadline = limit.when() if limit is not None else None
        began = asyncio.get_running_loop().time()
        if limit is not None:
            limit.reschedule(None)
        try:
            return await ask(form)
        finally:
            if limit is not None and deadline is not None:
                limit.reschedule(deadline + asyncio.get_running_loop().time() - began)

    return ask_without_limit


class BadArguments(ValueError):
    """The arguments of a call are invalid. The model reads the message, and may call again with other arguments."""


def parse_arguments(call: ToolCall) -> JsonObject:
    """Return the call's arguments as an object. Raises `BadArguments`."""
    if len(call.arguments) > MAX_ARGUMENTS:
        raise BadArguments(f"The arguments are longer than {MAX_ARGUMENTS} characters.")
    try:
        arguments = json.loads(call.arguments or "{}", parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadArguments("The arguments are not valid JSON.") from error
    if not isinstance(arguments, dict):
        raise BadArguments("The arguments must be a JSON object.")
    cleaned: JsonObject = replace_unstorable(arguments)
    return cleaned


def refuse_constant(constant: str) -> NoReturn:
    """Raise `ValueError` for NaN and Infinity: JSON lacks them, so they can be neither stored nor sent."""
    raise ValueError(constant)


async def run_tool(tool: Tool, arguments: Mapping[str, Any]) -> ToolOutput:
    """Run one tool under its time limit. A time-out and `BadArguments` become an output that tells the model why.

    Other errors of the tool are raised. The text may have any length. The caller plans how much of it is sent.
    """
    try:
        async with asyncio.timeout(tool.timeout) as limit:
            token = _limit.set(limit)
            try:
                return await tool.run(arguments)
            finally:
                _limit.reset(token)
    except TimeoutError:
        return ToolOutput(f"The tool returned no result within {tool.timeout:g} seconds.", error=True)
    except BadArguments as error:
        return ToolOutput(str(error), error=True)
