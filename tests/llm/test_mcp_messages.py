"""Messages of tool servers that are not quite JSON-RPC: their readable parts are used."""

import json
from typing import Any

import pytest

from llm.tools.mcp_messages import MAX_NESTING, TOO_DEEP_NOTE, mend_message

GOOD = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'


def test_a_good_message_stays_as_it_is() -> None:
    assert mend_message(GOOD) is GOOD


@pytest.mark.parametrize(
    ("message", "member", "expected"),
    [
        (b"\xef\xbb\xbf" + GOOD, "result", {"tools": []}),
        (b'{"id":1.0,"result":{"a":1}}', "result", {"a": 1}),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":"caf\xe9"}}', "result", {"a": "caf�"}),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":"x\\ud83d"}}', "result", {"a": "x?"}),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":"tab\there"}}', "result", {"a": "tab\there"}),
        (b'{"jsonrpc":"2.0","id":1,"error":"broken"}', "error", {"code": -32000, "message": "broken"}),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":-5}}', "error", {"code": -5, "message": '{"code": -5}'}),
        (b'{"id":1,"result":["a"]}', "error", {"code": -32000, "message": "The server's result is not an object."}),
    ],
)
def test_a_message_with_a_fault_is_mended(message: bytes, member: str, expected: Any) -> None:
    answer = json.loads(mend_message(message) or b"{}")
    assert answer == {"jsonrpc": "2.0", "id": 1, member: expected}


def test_numbers_and_nesting_that_nobody_reads_cost_no_more_than_themselves() -> None:
    deep = b'{"a":' * 500 + b"1" + b"}" * 500
    message = b'{"jsonrpc":"2.0","id":1,"result":{"big":%s,"deep":%s,"good":1}}' % (b"9" * 5_000, deep)
    result = json.loads(mend_message(message) or b"{}", parse_constant=str)["result"]
    assert result["good"] == 1 and result["big"] == "Infinity"
    value, levels = result["deep"], 2
    while isinstance(value, dict):
        value, levels = value["a"], levels + 1
    assert (value, levels) == (TOO_DEEP_NOTE, MAX_NESTING)


@pytest.mark.parametrize(
    "line", [b"Starting on stdio...", b"[1]", b"5", b"null", b'{"level":"info"}', b"", b"[" * 100_000]
)
def test_what_is_no_message_is_none(line: bytes) -> None:
    assert mend_message(line) is None
