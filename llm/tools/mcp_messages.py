"""Repair messages of MCP servers that deviate from JSON-RPC, before the package reads them.

The package `mcp` refuses a whole message for one bad character, and then waits for a valid answer until the timeout.
Known cases: half of a surrogate pair, since JavaScript cut a text within an emoji; Latin-1 output; a byte order mark;
errors that are plain text; numbers and nesting beyond the package's limits.
"""

import json
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_noop
from mcp_types import jsonrpc_message_adapter

from core.json_types import JsonObject

MAX_NESTING = 150  # levels; the package refuses more than 200
MAX_DIGITS = 4_000  # digits of an integer; the package refuses more than 4,300
TOO_DEEP_NOTE = "[nested too deeply to be read]"
SERVER_ERROR = -32000  # JSON-RPC's generic code for server errors


def mend_message(message: bytes) -> bytes | None:
    """Return the message in a form that the package accepts, unchanged if it is valid. None if it is not a message."""
    try:
        jsonrpc_message_adapter.validate_json(message, by_name=False)
    except ValueError:
        return _rewrite(message)
    return message


def _rewrite(message: bytes) -> bytes | None:
    try:
        value = json.loads(message.decode("utf-8-sig", "replace"), strict=False, parse_int=_parse_integer)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not ("method" in value or "id" in value):
        return None
    text = json.dumps(_limit_depth(_complete_envelope(value), 0), ensure_ascii=False)
    rewritten = text.encode("utf-8", "replace")  # half of a surrogate pair becomes a question mark
    try:
        jsonrpc_message_adapter.validate_json(rewritten, by_name=False)
    except ValueError:
        return None
    return rewritten


def _complete_envelope(message: Mapping[str, Any]) -> JsonObject:
    """Return the message with the members that JSON-RPC requires."""
    envelope = {**message, "jsonrpc": "2.0"}
    if isinstance(envelope.get("id"), float):
        envelope["id"] = int(envelope["id"])
    if "method" in envelope:
        return envelope
    error = envelope.pop("error", None)
    result = envelope.pop("result", None)
    if error is not None:
        return {**envelope, "error": _complete_error(error)}
    if not isinstance(result, dict):
        return {**envelope, "error": _complete_error(gettext_noop("The server's result is not an object."))}
    return {**envelope, "result": result}


def _complete_error(error: Any) -> JsonObject:
    members = error if isinstance(error, dict) else {"message": error}
    code = members.get("code")
    message = members.get("message")
    return {
        "code": code if isinstance(code, int) else SERVER_ERROR,
        "message": message if isinstance(message, str) and message else json.dumps(error, ensure_ascii=False),
    }


def _parse_integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


def _limit_depth(value: Any, level: int) -> Any:
    if not isinstance(value, dict | list):
        return value
    if level == MAX_NESTING:
        return TOO_DEEP_NOTE
    if isinstance(value, dict):
        return {name: _limit_depth(each, level + 1) for name, each in value.items()}
    return [_limit_depth(each, level + 1) for each in value]
