"""Mend tool calls so that every server accepts them: a plain name, and a JSON object of arguments.

Each request repeats the earlier calls of its conversation. So one call that a server refuses would block the
conversation for ever.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from core.json_types import JsonObject
from core.sound import replace_unstorable
from llm.types.model_call import ModelMessage, ToolCall
from llm.types.tools import refuse_constant

MAX_NAME_LENGTH = 64  # characters; OpenAI's and Anthropic's pattern is ^[a-zA-Z0-9_-]{1,64}$
UNKNOWN_NAME = "unknown_tool"
_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]+")
_REFUSED_ESCAPES = re.compile(
    r"\\u(?:0000|[dD][89a-fA-F])"
)  # escapes of NUL and of surrogates, which may lack their pair
_PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def to_json_object(arguments: str) -> JsonObject:
    """Return the arguments of a call as an object. Other texts and values become its only member, unchanged."""
    try:
        value = replace_unstorable(json.loads(arguments or "{}", parse_constant=refuse_constant))
    except (ValueError, RecursionError):
        return {"invalid_json": arguments}
    return value if isinstance(value, dict) else {"value": value}


def is_object(arguments: str) -> bool:
    """Return whether the text is a JSON object."""
    try:
        return isinstance(json.loads(arguments, parse_constant=refuse_constant), dict)
    except (ValueError, RecursionError):
        return False


def to_json_text(arguments: str) -> str:
    """Return the arguments as the text of a JSON object, unchanged if every server accepts them."""
    if is_object(arguments) and not _REFUSED_ESCAPES.search(arguments):
        return arguments
    return json.dumps(to_json_object(arguments), ensure_ascii=False)


def is_plain(name: str) -> bool:
    return _PLAIN_NAME.fullmatch(name) is not None


def to_plain_name(name: str) -> str:
    """Return the name without characters that servers refuse, in at most 64 characters."""
    return _NOT_PLAIN.sub("_", name).strip("_")[:MAX_NAME_LENGTH] or UNKNOWN_NAME if not is_plain(name) else name


def resolve_name(name: str, tools: Collection[str]) -> str:
    """Return the only tool that the name contains, as in `functions.x` or `x<|channel|>commentary`, or the name."""
    if name in tools:
        return name
    words = [word for word in _NOT_PLAIN.split(name) if word in tools]
    return words[0] if len(set(words)) == 1 else name


def mend_messages(messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Return the messages with calls that every server accepts. Ids stay: clients mend them, since protocols differ."""
    return tuple(_mend_message(message) if message.tool_calls else message for message in messages)


def _mend_message(message: ModelMessage) -> ModelMessage:
    calls = tuple(
        ToolCall(call.id, to_plain_name(call.name), to_json_text(call.arguments)) for call in message.tool_calls
    )
    return message if calls == message.tool_calls else replace(message, tool_calls=calls)
