"""Requests and answers of `manage.py plan` (context.md, section 8): JSON lines in, JSON lines out."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from chat.context.budget import Reserves, document_budget
from chat.context.build import POLICIES, build
from chat.context.errors import ContextError
from chat.context.fields import BadRequest, Fields, parse_object
from chat.context.layout import LAYOUTS
from chat.context.report import Prompt
from chat.context.room import Room
from chat.context.summary import Bounds, SummaryMessage, is_due, plan_summary
from chat.context.types import Block, ContextMessage, ContextRequest, Document, ImageRef, PromptMessage, Role
from llm import tokens
from llm.errors import ProductError
from llm.messages import ToolCall

Answer = dict[str, Any]

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool"}


def run(kind: str, lines: Iterable[str | bytes], write: Callable[[str], object]) -> bool:
    """Answers each line that is not blank with one line of ASCII JSON, in order, as it comes.

    `kind` is a name in `KINDS`. Returns whether every request was well formed.
    """
    well_formed = True
    for line in lines:
        if line.strip():
            text, accepted = answer_line(kind, line)
            write(text + "\n")
            well_formed = well_formed and accepted
    return well_formed


def answer_line(kind: str, line: str | bytes) -> tuple[str, bool]:
    """The answer to one request, and whether the request was well formed."""
    try:
        answer, well_formed = _answer(kind, line)
        return json.dumps(answer), well_formed
    except (RecursionError, ValueError):
        # Arguments nested a little below the parser's limit, and sums of numbers with thousands of digits.
        return json.dumps(_error(BadRequest("The request is nested too deeply, or a number is too large."))), False


def _answer(kind: str, line: str | bytes) -> tuple[Answer, bool]:
    try:
        return KINDS[kind](parse_object(line)), True
    except BadRequest as error:
        return _error(error), False
    except ContextError as error:
        return _error(error), True


def answer_context(request: Fields) -> Answer:
    return _prompt(build(context_request(request)))


def answer_budget(request: Fields) -> Answer:
    budget = document_budget(
        request.number("window"),
        request.numbers("prompts"),
        Reserves(
            reserved_output=request.number("reserved_output", 1_024),
            expected_user=request.number("expected_user", 512),
            buffer=request.number("buffer", 40),
            tools_tokens=request.number("tools_tokens", 0),
            ui_share=request.share("ui_share", Decimal("0.5")),
            select_margin=request.number("select_margin", 75),
        ),
    )
    answer: Answer = {
        "available": budget.available,
        "offered": budget.offered,
        "selectable_up_to": budget.selectable_up_to,
    }
    selected, candidate = request.known_numbers("selected"), request.known_number("candidate")
    if "candidate" in request:
        answer["accepts_candidate"] = budget.accepts(candidate, selected)
    return answer


def answer_summary(request: Fields) -> Answer:
    request.number("window")
    bounds = Bounds(request.number("ceiling"), request.number("floor"), request.number("keep_recent", 8))
    used, fixed = request.number("used"), request.number("fixed")
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


KINDS: dict[str, Callable[[Fields], Answer]] = {
    "context": answer_context,
    "budget": answer_budget,
    "summary": answer_summary,
}


def context_request(request: Fields) -> ContextRequest:
    """The engine's request. The blocks are taken as given: what is inline and what the texts say is the caller's."""
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
        omission_note=request.flag("omission_note"),
        system=_block(request.part("system")),
        tasks=_block(request.part("tasks")),
        summary=_block(request.part("summary")),
        persona=_block(persona),
        persona_replaces_system=persona is not None and persona.flag("replaces_system"),
        project_files=tuple(_document(file) for file in request.objects("project_files")),
        file_listing=_block(request.part("file_listing")),
        reminder=_block(request.part("reminder")),
    )


def _room(request: Fields) -> Room:
    return Room(
        window=request.number("window"),
        reserved_output=request.number("reserved_output", 1_024),
        buffer=request.number("buffer", 40),
        safety_margin=request.share("safety_margin", Decimal(0)),
        tools_tokens=request.number("tools_tokens", 0),
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


def _message(message: Fields) -> ContextMessage:
    role = ROLES[message.choice("role", ROLES)]
    files = tuple(_document(file) for file in message.objects("files"))
    if files and role != "user":
        message.refuse("files", "may only be on a user message")
    calls = tuple(_tool_call(call) for call in message.objects("tool_calls")) if role == "assistant" else ()
    text, given = message.text("text"), message.optional_number("tokens")
    if text is None and given is None and not calls:
        message.refuse("text", "or “tokens” must be given")
    return ContextMessage(
        id=message.name("id"),
        role=role,
        text=text,
        tokens=given,
        files=files,
        images=tuple(ImageRef(image.name("id"), image.number("tokens")) for image in message.objects("images")),
        tool_calls=calls,
        tool_call_id=message.text("tool_call_id") if role == "tool" else None,
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


def _refuse_repeated(request: Fields, ids: list[str]) -> None:
    if len(set(ids)) < len(ids):
        repeated = next(name for name, times in Counter(ids).items() if times > 1)
        request.refuse("messages", f"has the id “{repeated}” more than once")


def _prompt(prompt: Prompt) -> Answer:
    return {
        "ok": True,
        "messages": [_prompt_message(message) for message in prompt.messages],
        "report": prompt.report.as_dict(),
    }


def _prompt_message(message: PromptMessage) -> Answer:
    answer: Answer = {
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


def _error(error: ProductError) -> Answer:
    return {"ok": False, "error": {"code": error.code, "message": error.detail, **error.extra}}
