"""Requests that `manage.py plan` cannot answer, and lines that are none (docs/develop/context.md, “manage.py plan”)."""

import json
from typing import Any

import pytest

from tests.chat.context.asking import BARE, answers, assistant, context, error_code, file, plan, user

MINIMAL = {**BARE, "messages": [user("U1")]}


@pytest.mark.parametrize(
    "change",
    [
        {"window": None}, {"window": -1}, {"window": 10.5}, {"window": 1000.0}, {"window": "1000"}, {"window": True},
        {"reserved_output": -1}, {"buffer": None}, {"message_overhead": 0.5}, {"tools_tokens": "x"},
        {"safety_margin": -0.1}, {"safety_margin": "0.1"}, {"safety_margin": True}, {"tool_result_stub_tokens": -1},
        {"policy": "newest"}, {"policy": None}, {"layout": "any"}, {"tokenizer": "gpt2"}, {"omission_note": 1},
        {"system": "text"}, {"system": {"tokens": -1}}, {"system": {"text": 5}},
        {"persona": {"replaces_system": "yes"}},
        {"project_files": [{"title": "no id"}]}, {"project_files": [{"id": "p", "tokens": 1.5}]}, {"project_files": {}},
        {"messages": {}}, {"messages": ["U1"]},
        {"messages": [{"role": "user", "tokens": 1}]}, {"messages": [{"id": "", "role": "user", "tokens": 1}]},
        {"messages": [user("U1"), user("U1")]}, {"messages": [{"id": "U1", "role": "user"}]},
        {"messages": [user("U1", role="system")]}, {"messages": [{"id": "U1", "tokens": 1}]},
        {"messages": [user("U1"), assistant("A1", files=[file("f", 1)])]},
        {"messages": [user("U1"), {"id": "A1", "role": "assistant", "tool_calls": []}]},
        {"messages": [user("U1", images=[{"id": "i"}])]}, {"messages": [user("U1", -1)]},
        {"messages": [user("U1", True)]},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_a_malformed_context_request_is_a_bad_request(change: dict[str, Any]) -> None:
    assert error_code(plan("context", {**MINIMAL, **change})) == "bad_request"


def test_a_missing_window_is_a_bad_request() -> None:
    answer = plan("context", {"messages": [user("U1")]})
    assert error_code(answer) == "bad_request" and "window" in answer["error"]["message"]


def test_a_bad_field_is_named_with_its_place() -> None:
    answer = context(user("U1"), user("U2", files=[file("f", -3)]))
    assert "messages[1].files[0].tokens" in answer["error"]["message"]


@pytest.mark.parametrize(
    "change",
    [
        {"window": -5}, {"prompts": None}, {"prompts": [1.5]}, {"prompts": [None]}, {"ui_share": -1},
        {"ui_share": "half"},
        {"selected": ["x"]}, {"candidate": -1}, {"candidate": 2.5}, {"select_margin": None},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_a_malformed_budget_request_is_a_bad_request(change: dict[str, Any]) -> None:
    assert error_code(plan("budget", {"window": 8_000, "prompts": [1], **change})) == "bad_request"


@pytest.mark.parametrize("missing", ["window", "ceiling", "floor", "used", "fixed"])
def test_a_summary_request_needs_its_numbers(missing: str) -> None:
    request = {"window": 100, "ceiling": 50, "floor": 10, "used": 60, "fixed": 5, "messages": []}
    del request[missing]
    assert error_code(plan("summary", request)) == "bad_request"


@pytest.mark.parametrize(
    "messages", [[{"id": "a", "role": "user"}], [{"id": "a", "role": "x", "tokens": 1}], [user("a"), user("a")]]
)
def test_a_malformed_summary_message_is_a_bad_request(messages: list[dict[str, Any]]) -> None:
    request = {"window": 100, "ceiling": 50, "floor": 10, "used": 60, "fixed": 5, "messages": messages}
    assert error_code(plan("summary", request)) == "bad_request"


def test_unknown_fields_are_ignored_and_blank_lines_skipped() -> None:
    written, well_formed = answers("context", "", "  \n", json.dumps({**MINIMAL, "mood": "good"}), b"\r\n")
    assert well_formed and [answer["ok"] for answer in written] == [True]


def test_a_missing_question_comes_before_a_length_error() -> None:
    assert error_code(context(assistant("A1", 5_000), system={"tokens": 9_000})) == "no_user_message"
    assert error_code(context(window=0)) == "no_user_message"


@pytest.mark.parametrize(
    "line",
    [
        "not json", "[1]", "null", "3", '"text"', "{", '{"window": NaN}', '{"window": Infinity}', '{"window": 1} {}',
        b'{"window": "\xff"}', "[" * 200_000, '{"a":' * 200_000, '{"window": ' + "9" * 5_000 + "}",
        '{"window": 1, "safety_margin": 1e-999999999, "messages": []}',
        '{"window": 1000, "messages": [{"id": "U1", "role": "user", "text": "\\ud83e"}]}',
    ],
    ids=lambda line: str(line[:30]),
)  # fmt: skip
def test_a_line_that_is_no_request_gets_an_error_answer_and_the_rest_goes_on(line: str | bytes) -> None:
    written, well_formed = answers("context", line, json.dumps(MINIMAL))
    assert [error_code(answer) for answer in written] == ["bad_request", None] and not well_formed


def test_numbers_too_large_to_write_are_a_bad_request() -> None:
    huge = int("9" * 4_300)
    assert error_code(context(user("U1", huge), system={"tokens": huge}, window=huge)) == "bad_request"
    assert error_code(context(user("U1"), window=1, buffer=huge, reserved_output=huge)) == "bad_request"


@pytest.mark.parametrize("depth", [300, 900, 5_000])
def test_deeply_nested_arguments_get_an_answer(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    call_json = f'{{"id": "T", "role": "assistant", "tool_calls": [{{"id": "c", "name": "n", "arguments": {nested}}}]}}'
    line = f'{{"window": 9000, "messages": [{{"id": "U", "role": "user", "tokens": 1}}, {call_json}]}}'
    (answer,), well_formed = answers("context", line)
    assert error_code(answer) in (None, "bad_request") and well_formed == (error_code(answer) is None)


def test_a_line_of_ten_megabytes_is_answered() -> None:
    text = "All work and no play makes Jack a dull boy. " * 240_000
    (answer,), well_formed = answers("context", json.dumps({**BARE, "messages": [user("U1", None, text=text)]}))
    assert well_formed and error_code(answer) == "context_too_long"


def test_errors_of_a_conversation_are_answers_and_no_failures() -> None:
    written, well_formed = answers(
        "context", json.dumps({**MINIMAL, "messages": []}), json.dumps({**MINIMAL, "window": 1})
    )
    assert [error_code(answer) for answer in written] == ["no_user_message", "context_too_long"] and well_formed
