"""How the real services refuse definitions of tools.

OpenAI: the words and `param` as reported in ogx#3004, github-mcp-server#1548, vscode-unify-chat-provider#162 and for a
list that is too long in many clients' trackers; its list is closed at 128. Anthropic: opencode#35516, huly-mcp#66.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .script import Failure

MAX_TOOLS = 128
_COMBINED = ("oneOf", "anyOf", "allOf", "enum", "not")
_KEYS = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def openai(body: Mapping[str, Any]) -> Failure | None:
    """Return the refusal of tools in Chat Completions, or in Responses, whose tools are flat."""
    tools = [each for each in body.get("tools") or () if each.get("type") == "function"]
    if len(tools) > MAX_TOOLS:
        message = (
            f"Invalid 'tools': array too long. Expected an array with maximum length {MAX_TOOLS}, but got an array "
            f"with length {len(tools)} instead."
        )
        return _openai_failure(message, "tools", "array_above_max_length")
    for number, tool in enumerate(tools):
        function = tool.get("function", tool)
        place = f"tools[{number}].function.parameters" if "function" in tool else f"tools[{number}].parameters"
        if fault := next(_openai_faults(function.get("parameters", {})), ""):
            message = f"Invalid schema for function '{function['name']}': {fault}"
            return _openai_failure(message, place, "invalid_function_parameters")
    return None


def _openai_failure(message: str, param: str, code: str) -> Failure:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Failure(400, message, body={"error": error})


def _openai_faults(schema: Any) -> Iterator[str]:
    if schema.get("type") != "object":
        yield f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{schema.get('type')}\"'."
    if any(name in schema for name in _COMBINED):
        yield "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
    if "properties" not in schema:
        yield "In context=(), object schema missing properties."
    yield from _nested(schema, ())


def _nested(schema: Any, context: tuple[str, ...]) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"{schema!r} is not of type 'object', 'boolean'."
        return
    if schema.get("type") == "array" and "items" not in schema:
        yield f"In context={context}, array schema missing items."
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        yield f"{properties!r} is not of type 'object'."
        return
    for name, inner in properties.items():
        yield from _nested(inner, (*context, "properties", name))
    if "items" in schema:
        yield from _nested(schema["items"], (*context, "items"))


def anthropic(body: Mapping[str, Any]) -> Failure | None:
    for number, tool in enumerate(body.get("tools") or ()):
        if "input_schema" not in tool:
            continue
        if fault := next(_anthropic_faults(tool["input_schema"]), ""):
            return Failure(400, f"tools.{number}.custom.{fault}")
    return None


def _anthropic_faults(schema: Mapping[str, Any]) -> Iterator[str]:
    if schema.get("type") != "object":
        yield "input_schema.type: Field required"
    if any(name in schema for name in _COMBINED[:3]):
        yield "input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
    if not all(_KEYS.fullmatch(name) for name in schema.get("properties") or {}):
        yield "input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"
