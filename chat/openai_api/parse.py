"""Check a request of `chat/completions` and return its parts, or raise an error that names the parameter."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from chat.models.parts import MessagePart
from chat.openai_api import request as shared
from chat.openai_api.errors import invalid_request
from chat.openai_api.request import HistoryBuilder, ProgramRequest, RequestFile, RequestHistory, typed_member
from chat.prompts.turn_context import ProgramOptions
from core.json_types import JsonObject
from llm.types.model_call import EFFORTS, Sampling, ToolChoice, ToolDefinition

MAX_SEED = 2**63 - 1
# For each unsupported parameter, whether a value means the same as leaving the parameter out.
_IGNORABLE_VALUES: dict[str, Callable[[Any], bool]] = {
    "n": lambda value: value == 1,
    "logprobs": lambda value: value is False,
    "top_logprobs": lambda value: value == 0,
    "logit_bias": lambda value: value == {},
    "modalities": lambda value: value == ["text"],
    "audio": lambda value: False,
    "moderation": lambda value: False,
    "store": lambda value: value is False,
    "service_tier": lambda value: value in ("auto", "default"),
    "web_search_options": lambda value: False,
    "functions": lambda value: value == [],
    "function_call": lambda value: value == "none",
}


def parse(body: JsonObject, *, replaces_system: bool = False) -> ProgramRequest:
    """Check the body of a request, which has no null members, and return its parts. Raises `ProductError` (400).

    `replaces_system`: see `chat.prompts.turn_context.ProgramOptions`.
    """
    shared.refuse_unsupported(body, _IGNORABLE_VALUES)
    shared.require_members(body, "model", "messages")
    history = _read_messages(body)
    return ProgramRequest(
        model=typed_member(body, "model", str, ""),
        history=history,
        options=replace(_options(body, history.instructions), replaces_system=replaces_system),
        stream=typed_member(body, "stream", bool, False),
        include_usage=bool(typed_member(body, "stream_options", dict, {}).get("include_usage")),
    )


def _options(body: JsonObject, instructions: str) -> ProgramOptions:
    tools = shared.read_tools(body, _tool)
    choice, named = _choice(body.get("tool_choice", "auto"), tools)
    return ProgramOptions(
        instructions=instructions,
        temperature=shared.number_member(body, "temperature", 0, 2),
        max_output=shared.max_output(body, "max_completion_tokens", "max_tokens"),
        stop=shared.stop_texts(body.get("stop", []), "stop"),
        tools=tools,
        tool_choice=choice,
        required_tool=named,
        parallel_tool_calls=typed_member(body, "parallel_tool_calls", bool, True),
        sampling=_read_sampling(body),
        response_format=_read_format(body.get("response_format", {"type": "text"})),
    )


def _tool(value: Any, where: str) -> list[ToolDefinition]:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict) or value.get("type") != "function":
        raise invalid_request(where, "A tool is an object of the type “function” with “function”.", "unsupported_tool")
    description, parameters = function.get("description"), function.get("parameters")
    return [shared.tool_definition(function.get("name"), description, parameters, f"{where}.function", "parameters")]


def _choice(value: Any, tools: tuple[ToolDefinition, ...]) -> tuple[ToolChoice, str | None]:
    """Return the tool choice, and the name of the one tool that is required, if any."""
    if value in ("auto", "none"):
        return value, None
    names = {tool.name for tool in tools}
    if value == "required" and names:
        return "required", None
    function = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    if isinstance(function, dict) and function.get("name") in names:
        return "required", function["name"]
    raise invalid_request("tool_choice", "“tool_choice” is auto, none, required, or one of the “tools” by its name.")


def _read_sampling(body: JsonObject) -> Sampling:
    """Return the sampling parameters. Default values are left out, since some providers refuse these parameters."""
    verbosity = shared.choice_member(body.get("verbosity"), "verbosity", shared.VERBOSITIES)
    return Sampling(
        top_p=shared.unless_neutral(1, shared.number_member(body, "top_p", 0, 1)),
        presence_penalty=shared.unless_neutral(0, shared.number_member(body, "presence_penalty", -2, 2)),
        frequency_penalty=shared.unless_neutral(0, shared.number_member(body, "frequency_penalty", -2, 2)),
        seed=_seed(body),
        reasoning_effort=shared.choice_member(body.get("reasoning_effort"), "reasoning_effort", EFFORTS),
        verbosity=None if verbosity == "medium" else verbosity,
    )


def _seed(body: JsonObject) -> int | None:
    value = body.get("seed")
    if value is not None and (type(value) is not int or abs(value) > MAX_SEED):
        raise invalid_request("seed", "“seed” must be a whole number of at most 64 bits.")
    return value


def _read_format(value: Any) -> JsonObject | None:
    """Return the response format for `llm.types.model_call.ModelRequest`, None for text, the default."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": kind}
    if kind == "json_schema":
        return {
            "type": kind,
            "json_schema": shared.read_schema(value.get("json_schema"), "response_format.json_schema"),
        }
    raise invalid_request(
        "response_format", "“response_format” is an object of the type text, json_object or json_schema."
    )


_UNANSWERED = "A message with “tool_calls” must be followed by the result of each"


def _read_messages(body: JsonObject) -> RequestHistory:
    messages = shared.list_of_messages(body, "messages")
    builder = HistoryBuilder("messages")
    for position, message in enumerate(messages):
        _add(builder, message, f"messages[{position}]")
    builder.require_answered(f"messages[{len(messages) - 1}]", _UNANSWERED)
    return builder.history()


def _add(builder: HistoryBuilder, message: Any, where: str) -> None:
    """Add the next message. `where` is its place. Raises `ProductError` (400)."""
    if not isinstance(message, dict):
        raise invalid_request(where, "A message is an object with “role” and “content”.")
    match message.get("role"):
        case "system" | "developer":
            builder.instruct(_text(message.get("content"), f"{where}.content"))
        case "user":
            builder.require_answered(where, _UNANSWERED)
            parts = list(_content(message.get("content"), f"{where}.content", files=True))
            texts = [part for part in parts if isinstance(part, str)]
            builder.ask(texts, [part for part in parts if not isinstance(part, str)])
        case "assistant":
            builder.require_answered(where, _UNANSWERED)
            builder.answer(_answer(message, where))
        case "tool":
            call = message.get("tool_call_id")
            if not builder.is_open(call):
                sentence = "A message with the role “tool” must answer a call of the assistant's message before it."
                raise invalid_request(f"{where}.tool_call_id", sentence)
            builder.result(str(call), _text(message.get("content"), f"{where}.content"))
        case _:
            raise invalid_request(f"{where}.role", "“role” is one of system, developer, user, assistant and tool.")


def _answer(message: JsonObject, where: str) -> list[MessagePart]:
    """Return the parts of a message of the assistant."""
    content = message.get("content")
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise invalid_request(f"{where}.tool_calls", "“tool_calls” must be a list.")
    if content is None and not calls:
        raise invalid_request(f"{where}.content", "A message of the assistant has “content” or “tool_calls”.")
    text = "" if content is None else _text(content, f"{where}.content")
    call_parts = [_call(call, f"{where}.tool_calls[{position}]") for position, call in enumerate(calls)]
    text_parts: list[MessagePart] = [{"type": "text", "text": text}] if text else []
    return [*text_parts, *call_parts]


def _call(call: Any, where: str) -> MessagePart:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type", "function") != "function":
        raise invalid_request(where, "A call is an object with “id”, the type “function” and “function”.")
    return shared.call_part(call.get("id"), function.get("name"), function.get("arguments", ""), where)


def _text(content: Any, where: str) -> str:
    """Return the text of a content that is a text or a list of text parts."""
    return "\n\n".join(part for part in _content(content, where) if isinstance(part, str))


def _content(content: Any, where: str, *, files: bool = False) -> Iterator[str | RequestFile]:
    """Yield the parts of a content: texts, images and files."""
    if isinstance(content, str):
        yield content
        return
    if not isinstance(content, list):
        raise invalid_request(where, "“content” must be a text or a list of parts.")
    for position, part in enumerate(content):
        place = f"{where}[{position}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("text", "refusal") and isinstance(part.get(kind), str):
            yield part[kind]
        elif kind == "image_url" and files:
            image = part.get("image_url")
            yield shared.read_data_url(image.get("url") if isinstance(image, dict) else image, f"{place}.image_url")
        elif kind == "file" and files:
            yield _file(part.get("file"), f"{place}.file")
        elif kind == "input_audio" and files:
            raise invalid_request(place, shared.NO_AUDIO, "unsupported_content")
        else:
            kinds = "text, image_url and file" if files else "text"
            raise invalid_request(place, f"The parts that can be sent here are {kinds}.", "unsupported_content")


def _file(value: Any, where: str) -> RequestFile:
    if not isinstance(value, dict):
        raise invalid_request(
            where, "A file is an object with “file_data” and “filename”, or with “file_id”.", "invalid_type"
        )
    if value.get("file_id") is not None:
        return shared.file_reference(value["file_id"], f"{where}.file_id")
    return shared.read_document(value.get("file_data"), value.get("filename"), f"{where}.file_data")
