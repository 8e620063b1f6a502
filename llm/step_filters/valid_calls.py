"""Tool calls as every server takes them: a plain name, a JSON object of arguments, and an id of their own.

A call that a server refuses stands in each later request of its conversation, which then can never be answered again.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from core.sound import sound
from llm.types.model_call import Message, ToolCall
from llm.types.tools import refuse_constant

LONGEST_NAME = 64  # characters; OpenAI's and Anthropic's pattern is ^[a-zA-Z0-9_-]{1,64}$
UNKNOWN_NAME = "unknown_tool"
_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]+")
_UNSENDABLE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")  # escapes of NUL and of surrogates, which may be unpaired
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def json_object(arguments: str) -> dict[str, Any]:
    """The arguments of a call as an object. What a model wrote instead of one is kept in it as it was."""
    try:
        value = sound(json.loads(arguments or "{}", parse_constant=refuse_constant))
    except (ValueError, RecursionError):
        return {"invalid_json": arguments}
    return value if isinstance(value, dict) else {"value": value}


def is_object(arguments: str) -> bool:
    """Whether the text is a JSON object."""
    try:
        return isinstance(json.loads(arguments, parse_constant=refuse_constant), dict)
    except (ValueError, RecursionError):
        return False


def json_text(arguments: str) -> str:
    """The arguments as the text of a JSON object: to the letter where they are one that can be sent."""
    if is_object(arguments) and not _UNSENDABLE.search(arguments):
        return arguments
    return json.dumps(json_object(arguments), ensure_ascii=False)


def is_plain(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def plain_name(name: str) -> str:
    """The name with nothing in it that servers refuse."""
    return _NOT_PLAIN.sub("_", name).strip("_")[:LONGEST_NAME] or UNKNOWN_NAME if not is_plain(name) else name


def resolved_name(name: str, known: Collection[str]) -> str:
    """The one known tool that a name holds, as in `functions.x` or `x<|channel|>commentary`; else the name itself."""
    if name in known:
        return name
    words = [word for word in _NOT_PLAIN.split(name) if word in known]
    return words[0] if len(set(words)) == 1 else name


def mended(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages with calls that every server takes. Ids are left to the adapters, as protocols differ in them."""
    return tuple(_mended(message) if message.tool_calls else message for message in messages)


def _mended(message: Message) -> Message:
    calls = tuple(ToolCall(call.id, plain_name(call.name), json_text(call.arguments)) for call in message.tool_calls)
    return message if calls == message.tool_calls else replace(message, tool_calls=calls)
