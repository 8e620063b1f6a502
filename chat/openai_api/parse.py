"""A request of `chat/completions`, checked: what it asks for, or an error that names the parameter.

What does not change what an answer means (user, metadata, …) is accepted and not passed on. What would change it and
cannot be honoured is refused, rather than answered as if it had not been said.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from django.http import HttpRequest

from chat.openai_api.errors import refused
from chat.openai_api.messages import History, read_messages
from chat.openai_api.sampling import number, read_format, read_sampling
from chat.prompts.options import MAX_TOOLS, NO_PARAMETERS, TOOL_NAME, Options
from core.errors import ProductError
from llm.types.model_call import ToolChoice, ToolDefinition

MAX_BODY = 64 * 1024 * 1024  # bytes
MAX_STOPS, MAX_STOP = 4, 1_000
MAX_TOKENS = 10_000_000
# The values that say no more than leaving the parameter out would.
_HONOURED: dict[str, Callable[[Any], bool]] = {
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


@dataclass(frozen=True, slots=True)
class Wanted:
    model: str
    history: History
    options: Options
    stream: bool
    include_usage: bool


def body_of(request: HttpRequest) -> dict[str, Any]:
    """Raises `request_too_large` (413) and `invalid_json`."""
    raw = request.read(MAX_BODY + 1)
    if len(raw) > MAX_BODY:
        most = f"The request is larger than {MAX_BODY // 1024 // 1024} MiB. Send less, or smaller images."
        raise ProductError("request_too_large", most, status=413)
    try:
        body = _storable(json.loads(raw, parse_constant=_refuse))
    except (ValueError, RecursionError) as error:
        raise refused(None, "The request is not valid JSON.", "invalid_json") from error
    if not isinstance(body, dict):
        raise refused(None, "The request must be a JSON object.", "invalid_json")
    return {name: value for name, value in body.items() if value is not None}


def _refuse(constant: str) -> NoReturn:
    """NaN and Infinity are Python's, not JSON's."""
    raise ValueError(constant)


def _storable(value: Any) -> Any:
    """Without what PostgreSQL cannot hold: NUL, and halves of characters."""
    if isinstance(value, str):
        return value.replace("\x00", "").encode(errors="replace").decode()
    if isinstance(value, list):
        return [_storable(each) for each in value]
    if isinstance(value, dict):
        return {_storable(name): _storable(each) for name, each in value.items()}
    return value


def read(body: Mapping[str, Any]) -> Wanted:
    """`body` without members that are null."""
    for name, honoured in _HONOURED.items():
        if name in body and not honoured(body[name]):
            sentence = f"“{name}” is not supported with this value. Leave it out."
            raise refused(name, sentence, "unsupported_parameter")
    for name in ("model", "messages"):
        if name not in body:
            raise refused(name, f"You must provide “{name}”.", "missing_required_parameter")
    history = read_messages(body["messages"])
    return Wanted(
        model=_typed(body, "model", str, ""),
        history=history,
        options=_options(body, history.instructions),
        stream=_typed(body, "stream", bool, False),
        include_usage=bool(_typed(body, "stream_options", dict, {}).get("include_usage")),
    )


def _options(body: Mapping[str, Any], instructions: str) -> Options:
    tools = _tools(body)
    choice, named = _choice(body.get("tool_choice", "auto"), tools)
    return Options(
        instructions=instructions,
        temperature=number(body, "temperature", 0, 2),
        max_output=_max_output(body),
        stop=_stop(body.get("stop", [])),
        tools=tools,
        tool_choice=choice,
        required_tool=named,
        parallel_tool_calls=_typed(body, "parallel_tool_calls", bool, True),
        sampling=read_sampling(body),
        response_format=read_format(body.get("response_format", {"type": "text"})),
    )


def _typed(body: Mapping[str, Any], name: str, kind: type[Any], default: Any) -> Any:
    value = body.get(name, default)
    if not isinstance(value, kind):
        word = {str: "a text", bool: "true or false", dict: "an object", list: "a list"}[kind]
        raise refused(name, f"“{name}” must be {word}.", "invalid_type")
    return value


def _max_output(body: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        if name in body:
            value = body[name]
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_TOKENS:
                raise refused(name, f"“{name}” must be a whole number from 1.")
            return value
    return None


def _stop(given: Any) -> tuple[str, ...]:
    stops = [given] if isinstance(given, str) else given
    if not isinstance(stops, list) or len(stops) > MAX_STOPS:
        raise refused("stop", f"“stop” must be a text or a list of at most {MAX_STOPS}.")
    if not all(isinstance(each, str) and 0 < len(each) <= MAX_STOP for each in stops):
        raise refused("stop", f"Each of “stop” must be a text of 1 to {MAX_STOP:,} characters.")
    return tuple(stops)


def _tools(body: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    given = _typed(body, "tools", list, [])
    if len(given) > MAX_TOOLS:
        raise refused("tools", f"At most {MAX_TOOLS} tools can be offered.")
    tools = tuple(_tool(tool, f"tools[{number}]") for number, tool in enumerate(given))
    if len({tool.name for tool in tools}) < len(tools):
        raise refused("tools", "Two tools have the same name.")
    return tools


def _tool(given: Any, where: str) -> ToolDefinition:
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(function, dict) or given.get("type") != "function":
        raise refused(where, "A tool is an object of the type “function” with “function”.", "unsupported_tool")
    name, described = function.get("name"), function.get("description") or ""
    parameters = function.get("parameters") or NO_PARAMETERS
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise refused(f"{where}.function.name", "A tool's name has 1 to 64 letters, digits, hyphens and underscores.")
    if not isinstance(described, str) or not isinstance(parameters, dict):
        raise refused(f"{where}.function", "“description” must be a text and “parameters” a JSON schema.")
    return ToolDefinition(name, described, parameters)


def _choice(given: Any, tools: tuple[ToolDefinition, ...]) -> tuple[ToolChoice, str | None]:
    """What is chosen, and the name of the one tool that is demanded, if one is."""
    if given in ("auto", "none"):
        return given, None
    names = {tool.name for tool in tools}
    if given == "required" and names:
        return "required", None
    function = given.get("function") if isinstance(given, dict) and given.get("type") == "function" else None
    if isinstance(function, dict) and function.get("name") in names:
        return "required", function["name"]
    raise refused("tool_choice", "“tool_choice” is auto, none, required, or one of the “tools” by its name.")
