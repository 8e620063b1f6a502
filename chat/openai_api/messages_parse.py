"""Check a request of Anthropic's `messages` and return its parts, or raise an error that names the parameter."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from chat.models.parts import MessagePart
from chat.openai_api import request as shared
from chat.openai_api.errors import invalid_request
from chat.openai_api.request import HistoryBuilder, ProgramRequest, RequestFile, RequestHistory, SentFile, typed_member
from chat.prompts.turn_context import ProgramOptions
from core.json_types import JsonObject
from llm.types.model_call import EFFORTS, Sampling, ToolChoice, ToolDefinition

MAX_STOPS = 100
# The most tokens of thinking for which each effort is chosen. The protocol's older form names tokens, not an effort.
EFFORT_BUDGETS = ((2_048, "low"), (8_192, "medium"))
_TEXT_MEDIA_TYPE = "text/plain"
# Edits of the context that leave the prompt as it is: a program's thinking is not sent back to the model.
_HARMLESS_EDITS = ("clear_thinking_20251015",)


def _is_harmless(value: Any) -> bool:
    edits = value.get("edits", []) if isinstance(value, dict) else None
    return isinstance(edits, list) and all(
        isinstance(each, dict) and each.get("type") in _HARMLESS_EDITS for each in edits
    )


# For each unsupported parameter, whether a value means the same as leaving the parameter out.
_IGNORABLE_VALUES: dict[str, Callable[[Any], bool]] = {
    "top_k": lambda value: False,
    "container": lambda value: False,
    "mcp_servers": lambda value: value == [],
    "context_management": _is_harmless,
    "compaction": lambda value: False,
    "thread": lambda value: False,
    "fallbacks": lambda value: value == [],
    "inference_geo": lambda value: False,
    "service_tier": lambda value: value in ("auto", "standard_only"),
    "speed": lambda value: value == "standard",
}


@dataclass(frozen=True, slots=True)
class MessagesRequest(ProgramRequest):
    """A checked request of `messages`. `shows_thinking`: the program asks for the model's thinking."""

    shows_thinking: bool = False


def parse(body: JsonObject, *, replaces_system: bool = False, counts: bool = False) -> MessagesRequest:
    """Check the body of a request, which has no null members, and return its parts. Raises `ProductError` (400).

    `replaces_system`: see `chat.prompts.turn_context.ProgramOptions`. `counts`: the request asks for the number of its
    tokens only.
    """
    shared.refuse_unsupported(body, _IGNORABLE_VALUES)
    shared.require_members(body, "model", "messages", *(() if counts else ("max_tokens",)))
    history = _read_messages(body)
    thinking = typed_member(body, "thinking", dict, {})
    options = _options(body, history.instructions, thinking)
    return MessagesRequest(
        model=typed_member(body, "model", str, ""),
        history=history,
        options=replace(options, replaces_system=replaces_system),
        stream=typed_member(body, "stream", bool, False),
        shows_thinking=thinking.get("type") in ("enabled", "adaptive") and thinking.get("display") != "omitted",
    )


def _options(body: JsonObject, instructions: str, thinking: JsonObject) -> ProgramOptions:
    tools = shared.read_tools(body, _tool)
    choice, named, parallel = _choice(typed_member(body, "tool_choice", dict, {"type": "auto"}), tools)
    output = typed_member(body, "output_config", dict, {})
    effort = shared.choice_member(output.get("effort"), "output_config.effort", EFFORTS)
    return ProgramOptions(
        instructions=instructions,
        temperature=shared.number_member(body, "temperature", 0, 1),
        max_output=shared.max_output(body, "max_tokens"),
        stop=shared.stop_texts(body.get("stop_sequences", []), "stop_sequences", MAX_STOPS),
        tools=tools,
        tool_choice=choice,
        required_tool=named,
        parallel_tool_calls=parallel,
        sampling=Sampling(
            top_p=shared.unless_neutral(1, shared.number_member(body, "top_p", 0, 1)),
            reasoning_effort=effort or _effort(thinking),
        ),
        response_format=_read_format(output.get("format") or body.get("output_format")),
    )


def _effort(thinking: JsonObject) -> str | None:
    """Return the effort of reasoning that the program's thinking stands for. None: the usual one."""
    match thinking.get("type"):
        case None | "disabled" | "adaptive":
            return None
        case "enabled":
            budget = thinking.get("budget_tokens")
            if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
                raise invalid_request("thinking.budget_tokens", "“budget_tokens” must be a whole number of tokens.")
            return next((effort for most, effort in EFFORT_BUDGETS if budget <= most), "high")
        case _:
            raise invalid_request("thinking.type", "“type” must be one of enabled, adaptive, disabled.")


def _tool(value: Any, where: str) -> list[ToolDefinition]:
    if not isinstance(value, dict) or value.get("type") not in (None, "custom"):
        kind = str(value.get("type"))[:100] if isinstance(value, dict) else "no object"
        sentence = (
            f"The tool “{kind}” runs at Anthropic or is unknown. Only tools with an “input_schema” are supported here."
        )
        raise invalid_request(where, sentence, "unsupported_tool")
    schema = value.get("input_schema")
    return [shared.tool_definition(value.get("name"), value.get("description"), schema, where, "input_schema")]


def _choice(value: JsonObject, tools: tuple[ToolDefinition, ...]) -> tuple[ToolChoice, str | None, bool]:
    """Return the tool choice, the name of the one tool that is required, if any, and whether calls may be parallel."""
    parallel = not typed_member(value, "disable_parallel_tool_use", bool, False, "tool_choice.")
    names = {tool.name for tool in tools}
    match value.get("type"):
        case "auto":
            return "auto", None, parallel
        case "none":
            return "none", None, parallel
        case "any" if names:
            return "required", None, parallel
        case "tool" if value.get("name") in names:
            return "required", str(value["name"]), parallel
    raise invalid_request(
        "tool_choice", "“tool_choice” has the type auto, none, any, or tool with the “name” of one of the tools."
    )


def _read_format(value: Any) -> JsonObject | None:
    """Return the response format for `llm.types.model_call.ModelRequest`, None for text, the default."""
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("type") != "json_schema":
        raise invalid_request("output_config.format", "“format” is an object of the type json_schema.")
    schema = shared.read_schema(value, "output_config.format", named=False)
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema["schema"]}}


_UNANSWERED = "Each “tool_use” must have its “tool_result” in the next message"


def _read_messages(body: JsonObject) -> RequestHistory:
    messages = shared.list_of_messages(body, "messages")
    builder = HistoryBuilder("messages")
    builder.instruct(_system(body.get("system", ""), "system"))
    for position, message in enumerate(messages):
        _add(builder, message, f"messages[{position}]")
    builder.require_answered(f"messages[{len(messages) - 1}]", _UNANSWERED)
    return builder.history()


def _system(content: Any, where: str) -> str:
    return "\n\n".join(_texts(content, where))


def _texts(content: Any, where: str) -> list[str]:
    """Return the texts of a content without files."""
    if isinstance(content, str):
        return [content]
    blocks = _blocks(content, where)
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    if len(texts) < len(blocks) or not all(isinstance(text, str) for text in texts):
        raise invalid_request(where, "The blocks that can be sent here are text.", "unsupported_content")
    return [str(text) for text in texts]


def _blocks(content: Any, where: str) -> list[JsonObject]:
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise invalid_request(where, "“content” must be a text or a list of blocks.")
    return content


def _add(builder: HistoryBuilder, message: Any, where: str) -> None:
    """Add the next message. `where` is its place. Raises `ProductError` (400)."""
    if not isinstance(message, dict):
        raise invalid_request(where, "A message is an object with “role” and “content”.")
    content, place = message.get("content"), f"{where}.content"
    match message.get("role"):
        case "user":
            _add_user(builder, content, place)
        case "assistant":
            builder.require_answered(where, _UNANSWERED)
            builder.answer(_answer(content, place))
        case "system":
            builder.instruct(_system(content, place))
        case _:
            raise invalid_request(f"{where}.role", "“role” is one of user, assistant and system.")


def _add_user(builder: HistoryBuilder, content: Any, where: str) -> None:
    """Add the results of tools in a message of the user, then its texts and files."""
    texts: list[str] = []
    files: list[RequestFile] = []
    results = 0
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else _blocks(content, where)
    for position, block in enumerate(blocks):
        place = f"{where}[{position}]"
        if block.get("type") == "tool_result":
            _add_result(builder, block, place)
            results += 1
        else:
            part = _part(block, place)
            if isinstance(part, str):
                texts.append(part)
            else:
                files.append(part)
    builder.require_answered(where, _UNANSWERED)
    if texts or files or not results:
        builder.ask(texts, files)


def _add_result(builder: HistoryBuilder, block: JsonObject, where: str) -> None:
    call = block.get("tool_use_id")
    if not builder.is_open(call):
        sentence = "A “tool_result” must have the “tool_use_id” of a “tool_use” in the message before."
        raise invalid_request(f"{where}.tool_use_id", sentence)
    content = block.get("content") or ""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else _blocks(content, f"{where}.content")
    parts = [_part(each, f"{where}.content[{position}]") for position, each in enumerate(blocks)]
    text = "\n\n".join(part for part in parts if isinstance(part, str))
    builder.result(str(call), text, error=typed_member(block, "is_error", bool, False, f"{where}."))
    builder.show([part for part in parts if not isinstance(part, str)])


def _part(block: JsonObject, where: str) -> str | RequestFile:
    """Return the text or the file of a block. Raises `unsupported_content` (400)."""
    match block.get("type"):
        case "text" if isinstance(block.get("text"), str):
            return str(block["text"])
        case "image":
            return _image(typed_member(block, "source", dict, {}, f"{where}."), f"{where}.source")
        case "document":
            return _document(block, typed_member(block, "source", dict, {}, f"{where}."), f"{where}.source")
        case "search_result":
            texts = _texts(block.get("content"), f"{where}.content")
            return "\n".join([str(block.get("title", "")), str(block.get("source", "")), *texts])
    sentence = "The blocks that can be sent here are text, image, document, search_result and tool_result."
    raise invalid_request(where, sentence, "unsupported_content")


def _image(source: JsonObject, where: str) -> RequestFile:
    match source.get("type"):
        case "base64" if isinstance(source.get("data"), str):
            return shared.read_image(str(source.get("media_type", "")), source["data"], f"{where}.data")
        case "file":
            return shared.file_reference(source.get("file_id"), f"{where}.file_id", shown=True)
        case "url":
            sentence = "Send the image itself, as base64. The server does not fetch URLs for programs."
            raise invalid_request(f"{where}.url", sentence, "unsupported_image_url")
    raise invalid_request(where, "“source” is of the type base64 or file.", "unsupported_content")


def _document(block: JsonObject, source: JsonObject, where: str) -> str | RequestFile:
    title = block.get("title")
    match source.get("type"):
        case "base64":
            return shared.read_document(source.get("data"), title, f"{where}.data", str(source.get("media_type", "")))
        case "text" if isinstance(source.get("data"), str) and source["data"]:
            name = str(title or "document.txt")
            return SentFile(_TEXT_MEDIA_TYPE, source["data"].encode(), f"{where}.data", name, shown=False)
        case "content":
            return "\n\n".join(_texts(source.get("content"), f"{where}.content"))
        case "file":
            return shared.file_reference(source.get("file_id"), f"{where}.file_id")
        case "url":
            sentence = "Send the document itself, as base64. The server does not fetch URLs for programs."
            raise invalid_request(f"{where}.url", sentence, "unsupported_file_url")
    raise invalid_request(where, "“source” is of the type base64, text, content or file.", "unsupported_content")


def _answer(content: Any, where: str) -> list[MessagePart]:
    """Return the parts of a message of the assistant."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else _blocks(content, where)
    parts: list[MessagePart] = []
    for position, block in enumerate(blocks):
        place = f"{where}[{position}]"
        match block.get("type"):
            case "text" if isinstance(block.get("text"), str):
                parts += [{"type": "text", "text": block["text"]}] if block["text"] else []
            case "tool_use":
                arguments = json.dumps(typed_member(block, "input", dict, {}, f"{place}."), ensure_ascii=False)
                parts.append(shared.call_part(block.get("id"), block.get("name"), arguments, place))
            case "thinking" | "redacted_thinking":
                pass  # the product keeps the reasoning itself, and recognises the calls that it belongs to
            case _:
                sentence = "The blocks that the assistant can have here are text, thinking and tool_use."
                raise invalid_request(place, sentence, "unsupported_content")
    return parts
