"""Read JSON requests, let the engine plan them, and write JSON answers (docs/develop/context.md, “manage.py plan”).

A request is read field by field. A field with a wrong value raises `BadRequest`.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Literal, NoReturn, NotRequired, TypeAlias, TypedDict

from chat.context.build import POLICIES, Prompt, ReportEntry, build
from chat.context.rendering import LAYOUTS
from chat.context.summary import Bounds, SummaryMessage, is_due, plan_summary
from chat.context.types import (
    Block,
    ContextError,
    ContextMessage,
    ContextRequest,
    Document,
    ImageRef,
    Mark,
    Memory,
    MemoryFact,
    PromptMessage,
    Reserves,
    Role,
    Room,
    document_budget,
)
from core.errors import ProductError
from core.json_types import JsonObject
from core.sentences import Sentence
from llm import tokens
from llm.types.model_call import ToolCall

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# More decimals than any share needs. Without a bound a few bytes (1e-999999999) would expand to gigabytes.
_DECIMALS = 100

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool"}
MARKS: dict[str, Mark] = {"pinned": "pinned", "excluded": "excluded"}


class CallAnswer(TypedDict):
    """A tool call of a `PromptMessageAnswer`."""

    id: str
    name: str
    arguments: str


class PromptMessageAnswer(TypedDict):
    """One message of a planned prompt."""

    section: str
    source: str | None
    role: str
    tokens: int
    content: str | None
    tool_calls: NotRequired[list[CallAnswer]]
    tool_call_id: NotRequired[str]
    images: NotRequired[list[str]]


class ContextAnswer(TypedDict):
    """The answer to a `context` request."""

    ok: Literal[True]
    messages: list[PromptMessageAnswer]
    report: ReportEntry


class BudgetAnswer(TypedDict):
    """The answer to a `budget` request. `accepts_candidate` is set if the request has a candidate."""

    available: int
    offered: int
    selectable_up_to: int
    accepts_candidate: NotRequired[bool]


class SummaryAnswer(TypedDict):
    """The answer to a `summary` request whose messages are to be summarised."""

    compress: Literal[True]
    summarise: list[str]
    keep: list[str]
    summary_tokens: int
    after: int
    floor_reached: bool


class NoSummaryAnswer(TypedDict):
    """The answer to a `summary` request that needs no summary."""

    compress: Literal[False]
    reason: NotRequired[str]


class ErrorAnswer(TypedDict):
    """The answer to a request that failed. `error` has `code`, `message` and further members for some codes."""

    ok: Literal[False]
    error: JsonObject


class BadRequest(ProductError):
    """Raised for a request that is not well formed. The detail names the field."""

    def __init__(self, detail: str) -> None:
        super().__init__("bad_request", Sentence.verbatim(detail))


def parse_object(line: str | bytes) -> "Fields":
    """Parse the JSON object of one line, with exact decimals. Raises `BadRequest`."""
    try:
        text = line if isinstance(line, str) else line.decode()
        value = json.loads(text, parse_float=Decimal, parse_constant=_reject_constant)
        if _ESCAPED_SURROGATE.search(text):
            # Half of a surrogate pair is not a character and cannot be encoded.
            json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeError as error:
        raise BadRequest("The request is not valid UTF-8 text.") from error
    except RecursionError as error:
        raise BadRequest("The request is nested too deeply.") from error
    except ValueError as error:
        raise BadRequest(f"The request is not valid JSON: {error}.") from error
    return Fields(value, "")


class Fields:
    """A JSON object of a request.

    `path` is its place in the request, with a full stop at the end. Error messages show it.
    """

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, dict):
            raise BadRequest(f"{path.rstrip('.') or 'The request'} must be a JSON object.")
        self._values: JsonObject = value
        self._path = path

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def has(self, name: str) -> bool:
        """Return whether the field is present and not `null`."""
        return self._values.get(name) is not None

    def number(self, name: str, default: int | None = None) -> int:
        """Return a whole number that is not negative. Without `default` the field is required."""
        if name not in self._values and default is not None:
            return default
        return self._whole(name, self._values.get(name))

    def optional_number(self, name: str) -> int | None:
        """Return a whole number, or None if the field is missing. `null` is refused."""
        return self._whole(name, self._values[name]) if name in self._values else None

    def number_or_null(self, name: str) -> int | None:
        """Return a whole number, or None if the number is unknown: the field is missing or `null`."""
        return self._whole(name, self._values[name]) if self.has(name) else None

    def numbers(self, name: str) -> list[int]:
        """Return a list of whole numbers. The field is required."""
        if not self.has(name):
            self.refuse(name, "is missing")
        return [self._whole(name, value) for value in self._list(name)]

    def numbers_or_nulls(self, name: str) -> list[int | None]:
        """Return a list of whole numbers, with None for each `null` (unknown). A missing field is an empty list."""
        return [None if value is None else self._whole(name, value) for value in self._list(name)]

    def share(self, name: str, default: Decimal) -> Decimal:
        """Return a decimal that is not negative."""
        value = self._values.get(name, default)
        if isinstance(value, int) and not isinstance(value, bool):
            value = Decimal(value)
        if not isinstance(value, Decimal) or value < 0 or not abs(int(value.as_tuple().exponent)) <= _DECIMALS:
            self.refuse(name, "must be a decimal number that is not negative")
        return value

    def text(self, name: str) -> str | None:
        """Return a text, or None if the field is missing or `null`."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, str):
            self.refuse(name, "must be a text")
        return value

    def name(self, name: str) -> str:
        """Return a text. The field is required and must not be empty."""
        value = self.text(name)
        if not value:
            self.refuse(name, "is missing")
        return value

    def choice(self, name: str, options: Collection[str], default: str | None = None) -> str:
        """Return one of `options`. Without `default` the field is required."""
        value = self._values.get(name, default)
        if not isinstance(value, str) or value not in options:
            self.refuse(name, f"must be one of {', '.join(options)}")
        return value

    def flag(self, name: str) -> bool:
        """Return a boolean; a missing field is False."""
        value = self._values.get(name, False)
        if not isinstance(value, bool):
            self.refuse(name, "must be true or false")
        return value

    def value(self, name: str, default: object) -> object:
        """Return the JSON value unchecked, or `default` if the field is missing or `null`."""
        value = self._values.get(name)
        return default if value is None else value

    def part(self, name: str) -> "Fields | None":
        """Return an object, or None if the field is missing or `null`."""
        return Fields(self._values[name], f"{self._path}{name}.") if self.has(name) else None

    def objects(self, name: str) -> Iterator["Fields"]:
        """Yield the objects of a list; none if the field is missing or `null`."""
        for position, value in enumerate(self._list(name)):
            yield Fields(value, f"{self._path}{name}[{position}].")

    def refuse(self, name: str, why: str) -> NoReturn:
        """Raise `BadRequest` about the field. `why` is the end of the sentence."""
        raise BadRequest(f"“{self._path}{name}” {why}.")

    def _list(self, name: str) -> list[Any]:
        value = self._values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            self.refuse(name, "must be a list")
        return value

    def _whole(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.refuse(name, "must be a whole number that is not negative")
        return value


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def run(
    kind: str,
    lines: Iterable[str | bytes],
    write: Callable[[str], object],
    kinds: "Mapping[str, Planner] | None" = None,
) -> bool:
    """Answer each line that is not blank with one line of ASCII JSON, at once and in order.

    `kind` is a name in `kinds`, by default `KINDS`. Return whether every request was well formed.
    """
    planner = (KINDS if kinds is None else kinds)[kind]
    well_formed = True
    for line in lines:
        if line.strip():
            text, accepted = answer_line(planner, line)
            write(text + "\n")
            well_formed = well_formed and accepted
    return well_formed


def answer_line(planner: "Planner", line: str | bytes) -> tuple[str, bool]:
    """Return the answer to one request as JSON, and whether the request was well formed."""
    try:
        answer, well_formed = _answer(planner, line)
        return json.dumps(answer), well_formed
    except (RecursionError, ValueError):
        # Two causes: arguments nested a little below the parser's limit, and sums of numbers with thousands of digits.
        return json.dumps(_error(BadRequest("The request is nested too deeply, or a number is too large."))), False


def _answer(planner: "Planner", line: str | bytes) -> tuple[Mapping[str, object], bool]:
    try:
        return planner(parse_object(line)), True
    except BadRequest as error:
        return _error(error), False
    except ContextError as error:
        return _error(error), True


def answer_context(request: Fields) -> ContextAnswer:
    """Answer a `context` request: build its prompt."""
    return _prompt(build(context_request(request)))


def answer_budget(request: Fields) -> BudgetAnswer:
    """Answer a `budget` request: compute its document budget."""
    budget = document_budget(request.number("window"), request.numbers("prompts"), _reserves(request))
    answer: BudgetAnswer = {
        "available": budget.available,
        "offered": budget.offered,
        "selectable_up_to": budget.selectable_up_to,
    }
    selected = request.numbers_or_nulls("selected")
    candidate = request.number_or_null("candidate")
    if "candidate" in request:
        answer["accepts_candidate"] = budget.accepts(candidate, selected)
    return answer


def answer_summary(request: Fields) -> SummaryAnswer | NoSummaryAnswer:
    """Answer a `summary` request: plan its summary."""
    request.number("window")  # required, although only the bounds are used
    bounds = _bounds(request)
    used = request.number("used")
    fixed = request.number("fixed")
    messages = [_summary_message(message) for message in request.objects("messages")]
    _refuse_repeated(request, [message.id for message in messages])
    if not is_due(bounds, used):
        return {"compress": False}
    plan = plan_summary(messages, bounds, used=used, fixed=fixed)
    if plan is None:
        return {"compress": False, "reason": "nothing_to_summarise"}
    return {
        "compress": True,
        "summarise": plan.summarise,
        "keep": plan.keep,
        "summary_tokens": plan.summary_tokens,
        "after": plan.after,
        "floor_reached": plan.floor_reached,
    }


Planner: TypeAlias = Callable[[Fields], Mapping[str, object]]  # answers the requests of one kind

# To add a kind of request: 1. Write a function that reads its fields and returns a TypedDict. 2. Add it here, or to the
# command if it is no kind of the engine. 3. Describe it in docs/develop/context.md, “manage.py plan”.
KINDS: dict[str, Planner] = {
    "context": answer_context,
    "budget": answer_budget,
    "summary": answer_summary,
}


def context_request(request: Fields) -> ContextRequest:
    """Return the engine's request. Its blocks are used as given: the caller decides which files are inline."""
    messages = [_message(message) for message in request.objects("messages")]
    _refuse_repeated(request, [message.id for message in messages])
    persona = request.part("persona")
    return ContextRequest(
        room=_room(request),
        messages=messages,
        tokenizer=tokens.tokenizer(request.choice("tokenizer", tokens.NAMES, tokens.CATCH_ALL)),
        policy=request.choice("policy", POLICIES, "recent"),
        layout=request.choice("layout", LAYOUTS, "near_end"),
        message_overhead=request.number("message_overhead", 4),
        stub_tokens=request.optional_number("tool_result_stub_tokens"),
        file_stub_tokens=request.optional_number("file_stub_tokens"),
        max_images=request.optional_number("max_images"),
        omission_note=request.flag("omission_note"),
        system=_block(request.part("system")),
        tasks=_block(request.part("tasks")),
        summary=_block(request.part("summary")),
        persona=_block(persona),
        memory=_memory(request.part("memory")),
        persona_replaces_system=persona is not None and persona.flag("replaces_system"),
        project_files=tuple(_document(file) for file in request.objects("project_files")),
        project_images=tuple(_image(image) for image in request.objects("project_images")),
        file_listing=_block(request.part("file_listing")),
        reminder=_block(request.part("reminder")),
    )


def _memory(memory: Fields | None) -> Memory | None:
    if memory is None:
        return None
    facts = tuple(
        MemoryFact(
            fact.name("id"),
            fact.name("text"),
            "pinned_fact" if fact.flag("pinned") else "matches",
            fact.optional_number("tokens"),
            required=fact.flag("pinned"),
        )
        for fact in memory.objects("facts")
    )
    _refuse_repeated(memory, [fact.id for fact in facts], "facts")
    return Memory(memory.text("heading") or "", memory.text("profile") or "", facts)


def _room(request: Fields) -> Room:
    defaults = Room(window=0)
    return Room(
        window=request.number("window"),
        reserved_output=request.number("reserved_output", defaults.reserved_output),
        buffer=request.number("buffer", defaults.buffer),
        safety_margin=request.share("safety_margin", defaults.safety_margin),
        tools_tokens=request.number("tools_tokens", defaults.tools_tokens),
    )


def _reserves(request: Fields) -> Reserves:
    defaults = Reserves()
    return Reserves(
        reserved_output=request.number("reserved_output", defaults.reserved_output),
        expected_user=request.number("expected_user", defaults.expected_user),
        buffer=request.number("buffer", defaults.buffer),
        tools_tokens=request.number("tools_tokens", defaults.tools_tokens),
        ui_share=request.share("ui_share", defaults.ui_share),
        select_margin=request.number("select_margin", defaults.select_margin),
    )


def _bounds(request: Fields) -> Bounds:
    defaults = Bounds(ceiling=0, floor=0)
    return Bounds(
        ceiling=request.number("ceiling"),
        floor=request.number("floor"),
        keep_recent=request.number("keep_recent", defaults.keep_recent),
    )


def _block(block: Fields | None) -> Block | None:
    return None if block is None else Block(block.text("text"), block.optional_number("tokens"))


def _document(file: Fields) -> Document:
    return Document(
        id=file.name("id"),
        title=file.text("title") or "",
        text=file.text("text"),
        tokens=file.optional_number("tokens"),
        metadata=file.text("metadata"),
    )


def _image(image: Fields) -> ImageRef:
    return ImageRef(image.name("id"), image.number("tokens"), title=image.text("title") or "")


def _message(message: Fields) -> ContextMessage:
    role = ROLES[message.choice("role", ROLES)]
    files = tuple(_document(file) for file in message.objects("files"))
    if files and role != "user":
        message.refuse("files", "may only be on a user message")
    calls = tuple(_tool_call(call) for call in message.objects("tool_calls")) if role == "assistant" else ()
    text = message.text("text")
    tokens_stated = message.optional_number("tokens")
    if text is None and tokens_stated is None and not calls:
        message.refuse("text", "or “tokens” must be given")
    return ContextMessage(
        id=message.name("id"),
        role=role,
        text=text,
        tokens=tokens_stated,
        files=files,
        images=tuple(_image(image) for image in message.objects("images")),
        tool_calls=calls,
        tool_call_id=message.text("tool_call_id") if role == "tool" else None,
        mark=MARKS[message.choice("mark", MARKS)] if message.has("mark") else None,
    )


def _tool_call(call: Fields) -> ToolCall:
    arguments = call.value("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, allow_nan=False, default=float)
    return ToolCall(call.name("id"), call.text("name") or "", arguments)


def _summary_message(message: Fields) -> SummaryMessage:
    role = message.choice("role", ROLES)
    has_calls = any(True for _ in message.objects("tool_calls"))
    return SummaryMessage(message.name("id"), role, message.number("tokens"), has_calls)


def _refuse_repeated(request: Fields, ids: list[str], name: str = "messages") -> None:
    if len(set(ids)) < len(ids):
        repeated = next(each for each, times in Counter(ids).items() if times > 1)
        request.refuse(name, f"has the id “{repeated}” more than once")


def _prompt(prompt: Prompt) -> ContextAnswer:
    return {
        "ok": True,
        "messages": [_prompt_message(message) for message in prompt.messages],
        "report": prompt.report.as_dict(),
    }


def _prompt_message(message: PromptMessage) -> PromptMessageAnswer:
    answer: PromptMessageAnswer = {
        "section": message.section,
        "source": message.source,
        "role": message.role,
        "tokens": message.tokens,
        "content": message.text,
    }
    if message.tool_calls:
        answer["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        answer["tool_call_id"] = message.tool_call_id
    if message.images:
        answer["images"] = [image.id for image in message.images]
    return answer


def _error(error: ProductError) -> ErrorAnswer:
    return {"ok": False, "error": {"code": error.code, "message": error.detail, **error.extra}}
