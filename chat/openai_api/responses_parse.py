"""Check a request of `responses` and return its parts, or raise an error that names the parameter.

Nothing is stored for later requests, so each request must have all of its items. `store: true`, the default of the
clients, is accepted, and the answer says `store: false`. Parameters that name a stored object are refused.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from chat.models.parts import MessagePart
from chat.openai_api import request as shared
from chat.openai_api.errors import invalid_request
from chat.openai_api.request import HistoryBuilder, ProgramRequest, RequestFile, RequestHistory, typed_member
from chat.prompts.turn_context import ProgramOptions
from core.errors import ProductError
from core.json_types import JsonObject
from llm.types.model_call import EFFORTS, Sampling, ToolChoice, ToolDefinition

INPUT = "input"  # the parameter of a custom tool
FREE_TEXT: JsonObject = {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}
# Parameters that name a stored response, conversation or prompt.
_STORED_REFERENCES = ("previous_response_id", "conversation", "prompt")
_LOGPROBS = "message.output_text.logprobs"
# For each unsupported parameter, whether a value means the same as leaving the parameter out.
_IGNORABLE_VALUES: dict[str, Callable[[Any], bool]] = {
    "background": lambda value: value is False,
    "context_management": lambda value: value == [],
    "max_tool_calls": lambda value: False,
    "moderation": lambda value: False,
    "service_tier": lambda value: value in ("auto", "default"),
    "store": lambda value: isinstance(value, bool),
    "top_logprobs": lambda value: value == 0,
    "truncation": lambda value: value in ("auto", "disabled"),
    "include": lambda value: isinstance(value, list) and _LOGPROBS not in value,
}
# Tools that run at OpenAI and that agents offer in every request. They are left out, and the report says so: the model
# can answer without them. Other tools that run at OpenAI are refused.
_SKIPPED_TOOLS = ("web_search", "web_search_preview", "image_generation", "tool_search")
# The members of a request that the answer repeats, with the values that they have by default.
_REPEATED_MEMBERS: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}


@dataclass(frozen=True, slots=True)
class ToolForm:
    """The form in which a program calls one of its tools.

    `custom`: the input is free text. The model then gets a function with this text as its only parameter, since few
    providers know such tools.
    """

    name: str
    namespace: str | None = None
    custom: bool = False

    @property
    def flat(self) -> str:
        """Return the name that the model gets."""
        return f"{self.namespace}__{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class ResponsesRequest(ProgramRequest):
    """A checked request of `responses`.

    `repeated` has the members that the answer repeats. `tools`: how the program names its tools, by the name that the
    model gets.
    """

    repeated: JsonObject = field(default_factory=dict)
    tools: Mapping[str, ToolForm] = field(default_factory=dict)


def parse(body: JsonObject, *, replaces_system: bool = False) -> ResponsesRequest:
    """Check the body of a request, which has no null members, and return its parts. Raises `ProductError` (400).

    `replaces_system`: see `chat.prompts.turn_context.ProgramOptions`.
    """
    for name in _STORED_REFERENCES:
        if name in body:
            sentence = f"“{name}” needs a stored object, and nothing is stored here. Send all items in “input”."
            raise invalid_request(name, sentence, "unsupported_parameter")
    shared.refuse_unsupported(body, _IGNORABLE_VALUES)
    shared.require_members(body, "model", "input")
    history = _read_input(body)
    tools = _ToolsReader(body)
    return ResponsesRequest(
        model=typed_member(body, "model", str, ""),
        history=history,
        options=replace(_options(body, history.instructions, tools), replaces_system=replaces_system),
        stream=typed_member(body, "stream", bool, False),
        repeated={
            **{name: body.get(name, default) for name, default in _REPEATED_MEMBERS.items()},
            "tools": [tool for tool in body.get("tools", ()) if tool["type"] not in _SKIPPED_TOOLS],
        },
        tools=tools.forms,
    )


def _options(body: JsonObject, instructions: str, tools: "_ToolsReader") -> ProgramOptions:
    choice, named = _choice(body.get("tool_choice", "auto"), tools.forms)
    text = typed_member(body, "text", dict, {})
    return ProgramOptions(
        instructions=instructions,
        temperature=shared.number_member(body, "temperature", 0, 2),
        max_output=shared.max_output(body, "max_output_tokens"),
        tools=tools.definitions,
        unoffered_tools=tuple(tools.left_out),
        tool_choice=choice,
        required_tool=named,
        parallel_tool_calls=typed_member(body, "parallel_tool_calls", bool, True),
        sampling=_read_sampling(body, text),
        response_format=_read_format(text.get("format") or {"type": "text"}),
    )


class _ToolsReader:
    """Reads the tools of a request. Raises `ProductError` (400) for one that is not supported."""

    def __init__(self, body: JsonObject) -> None:
        self.forms: dict[str, ToolForm] = {}
        self.left_out: list[str] = []
        self.definitions = shared.read_tools(body, self._read)

    def _read(self, value: Any, where: str) -> list[ToolDefinition]:
        kind = value.get("type") if isinstance(value, dict) else None
        match kind:
            case "function" | "custom":
                return [self._tool(value, where)]
            case "namespace" if isinstance(value.get("tools"), list):
                tools = enumerate(value["tools"])
                return [self._tool(tool, f"{where}.tools[{position}]", value.get("name")) for position, tool in tools]
        if kind in _SKIPPED_TOOLS:
            self.left_out.append(kind)
            return []
        sentence = (
            f"The tool “{str(kind)[:100]}” runs at OpenAI or is unknown. Only tools of the types function, custom and "
            "namespace are supported here."
        )
        raise invalid_request(where, sentence, "unsupported_tool")

    def _tool(self, value: Any, where: str, namespace: Any = None) -> ToolDefinition:
        if not isinstance(value, dict) or value.get("type") not in ("function", "custom"):
            raise invalid_request(
                where, "A tool of a namespace has the type “function” or “custom”.", "unsupported_tool"
            )
        custom = value["type"] == "custom"
        form = ToolForm(str(value.get("name") or ""), str(namespace) if namespace else None, custom)
        description, parameters = value.get("description"), value.get("parameters")
        if custom:
            description, parameters = _with_format(value, where), FREE_TEXT
        definition = shared.tool_definition(form.flat, description, parameters, where, "parameters")
        self.forms[form.flat] = form
        return definition


def _with_format(value: JsonObject, where: str) -> str:
    """Return the description of a custom tool, with the grammar of its input."""
    description, form = (
        typed_member(value, "description", str, "", f"{where}."),
        typed_member(value, "format", dict, {}, f"{where}."),
    )
    if form.get("type") != "grammar":
        return str(description)
    return f"{description}\n\n{form.get('syntax')}:\n{form.get('definition')}".strip()


def _choice(value: Any, forms: Mapping[str, ToolForm]) -> tuple[ToolChoice, str | None]:
    """Return the tool choice, and the name of the one tool that is required, if any."""
    if value in ("auto", "none"):
        return value, None
    if value == "required" and forms:
        return "required", None
    if isinstance(value, dict) and value.get("type") in ("function", "custom"):
        names = [flat for flat, form in forms.items() if value.get("name") in (flat, form.name)]
        if names:
            return "required", names[0]
    raise invalid_request("tool_choice", "“tool_choice” is auto, none, required, or one of the “tools” by its name.")


def _read_sampling(body: JsonObject, text: JsonObject) -> Sampling:
    """Return the sampling parameters. Default values are left out, since some providers refuse these parameters."""
    reasoning = typed_member(body, "reasoning", dict, {})
    verbosity = shared.choice_member(text.get("verbosity"), "text.verbosity", shared.VERBOSITIES)
    return Sampling(
        top_p=shared.unless_neutral(1, shared.number_member(body, "top_p", 0, 1)),
        reasoning_effort=shared.choice_member(reasoning.get("effort"), "reasoning.effort", EFFORTS),
        verbosity=None if verbosity == "medium" else verbosity,
    )


def _read_format(value: Any) -> JsonObject | None:
    """Return the response format for `llm.types.model_call.ModelRequest`, None for text, the default."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": kind}
    if kind == "json_schema":
        return {"type": kind, "json_schema": shared.read_schema(value, "text.format")}
    raise invalid_request("text.format", "“format” is an object of the type text, json_object or json_schema.")


def _read_input(body: JsonObject) -> RequestHistory:
    builder = HistoryBuilder("input")
    builder.instruct(typed_member(body, "instructions", str, ""))
    if isinstance(body["input"], str):
        builder.ask([body["input"]], [])
        return builder.history()
    for position, item in enumerate(shared.list_of_messages(body, "input")):
        _add(builder, item, f"input[{position}]")
    builder.require_answered("input", "Each “function_call” must have its “function_call_output”")
    return builder.history()


def _add(builder: HistoryBuilder, item: Any, where: str) -> None:
    """Add the next item. `where` is its place. Raises `ProductError` (400)."""
    if not isinstance(item, dict):
        raise invalid_request(where, "An item is an object with “type”, or a message with “role” and “content”.")
    match item.get("type", "message"):
        case "message":
            _message(builder, item, where)
        case "function_call" | "custom_tool_call" as kind:
            name, namespace = item.get("name"), item.get("namespace")
            flat = ToolForm(name, namespace).flat if isinstance(name, str) and isinstance(namespace, str) else name
            arguments = item.get("arguments", "")
            if kind == "custom_tool_call":
                arguments = json.dumps({INPUT: item.get("input", "")}, ensure_ascii=False)
            builder.go_on([shared.call_part(item.get("call_id"), flat, arguments, where)])
        case "function_call_output" | "custom_tool_call_output":
            _output(builder, item, where)
        case "reasoning":
            pass  # the product keeps the reasoning itself, and recognises the calls that it belongs to
        case "item_reference":
            sentence = "Items are not stored here, so they cannot be referenced. Send the item itself."
            raise invalid_request(where, sentence, "unsupported_item")
        case kind:
            sentence = f"Items of the type “{str(kind)[:100]}” are not supported."
            raise invalid_request(f"{where}.type", sentence, "unsupported_item")


def _message(builder: HistoryBuilder, item: JsonObject, where: str) -> None:
    place = f"{where}.content"
    match item.get("role"):
        case "system" | "developer":
            builder.instruct(_text(item.get("content"), place))
        case "user":
            texts, files = _content(item.get("content"), place)
            builder.ask(texts, files)
        case "assistant":
            text = _text(item.get("content"), place)
            parts: list[MessagePart] = [{"type": "text", "text": text}] if text else []
            builder.go_on(parts)
        case _:
            raise invalid_request(f"{where}.role", "“role” is one of system, developer, user and assistant.")


def _output(builder: HistoryBuilder, item: JsonObject, where: str) -> None:
    call = item.get("call_id")
    if not builder.is_open(call):
        sentence = "A “function_call_output” must have the “call_id” of a “function_call” before it."
        raise invalid_request(f"{where}.call_id", sentence)
    texts, files = _content(item.get("output"), f"{where}.output")
    builder.result(str(call), "\n\n".join(texts))
    builder.show(files)


def _text(content: Any, where: str) -> str:
    """Return the text of a content without files."""
    texts, files = _content(content, where)
    if files:
        raise invalid_request(
            files[0].where, "Images and files can be sent in messages of the user.", "unsupported_content"
        )
    return "\n\n".join(texts)


def _content(content: Any, where: str) -> tuple[list[str], list[RequestFile]]:
    """Return the texts and the files of a content."""
    if isinstance(content, str):
        return [content], []
    if not isinstance(content, list):
        raise invalid_request(where, "“content” must be a text or a list of parts.")
    texts: list[str] = []
    files: list[RequestFile] = []
    for position, part in enumerate(content):
        place = f"{where}[{position}]"
        match part.get("type") if isinstance(part, dict) else None:
            case "input_text" | "output_text" | "text" if isinstance(part.get("text"), str):
                texts.append(part["text"])
            case "refusal" if isinstance(part.get("refusal"), str):
                texts.append(part["refusal"])
            case "input_image":
                files.append(_image(part, place))
            case "input_file":
                files.append(_file(part, place))
            case "input_audio":
                raise invalid_request(place, shared.NO_AUDIO, "unsupported_content")
            case _:
                raise unknown_part(place)
    return texts, files


def unknown_part(where: str) -> ProductError:
    sentence = "The parts that can be sent here are input_text, input_image and input_file."
    return invalid_request(where, sentence, "unsupported_content")


def _image(part: JsonObject, where: str) -> RequestFile:
    if part.get("file_id") is not None:
        return shared.file_reference(part["file_id"], f"{where}.file_id", shown=True)
    return shared.read_data_url(part.get("image_url"), f"{where}.image_url")


def _file(part: JsonObject, where: str) -> RequestFile:
    if part.get("file_id") is not None:
        return shared.file_reference(part["file_id"], f"{where}.file_id")
    if part.get("file_url") is not None:
        sentence = "Send the file itself in “file_data”. The server does not fetch URLs for programs."
        raise invalid_request(f"{where}.file_url", sentence, "unsupported_file_url")
    return shared.read_document(part.get("file_data"), part.get("filename"), f"{where}.file_data")
