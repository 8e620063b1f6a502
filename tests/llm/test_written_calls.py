"""Tool calls in the text of models that are marked for it."""

import json
from typing import Any

import pytest

from llm.step_filters.valid_calls import resolve_name, to_json_text, to_plain_name
from llm.step_filters.written_calls import WrittenCallFilter, parse_calls
from llm.types.model_call import TextDelta

TOOLS = {"weather", "list_tasks"}
HUE = {"city": "Huế"}
CALL = json.dumps({"name": "weather", "arguments": HUE}, ensure_ascii=False)


@pytest.mark.parametrize(
    ("text", "left", "calls"),
    [
        (f"<tool_call>\n{CALL}\n</tool_call>", "", [HUE]),
        (f"Let me see.\n<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>", "Let me see.", [HUE, HUE]),
        (f"<tool_call>{CALL}", "", [HUE]),  # the end tag is a stop token of many templates
        (
            "<tool_call>\n<function=weather>\n<parameter=city>\nHuế\n</parameter>\n</function>\n</tool_call>",
            "",
            [HUE],
        ),
        ('<function=weather>{"city": "Huế"}</function>', "", [HUE]),
        ("<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Huế</arg_value>\n</tool_call>", "", [HUE]),
        ('<|python_tag|>{"name": "weather", "parameters": {"city": "Huế"}}<|eom_id|>', "", [HUE]),
        ('{"name": "weather", "parameters": {"city": "Huế"}}', "", [HUE]),
        (f"{CALL}; {CALL}", "", [HUE, HUE]),
        ('{"type": "function", "function": {"name": "weather", "arguments": "{\\"city\\": \\"Huế\\"}"}}', "", [HUE]),
        (f"[TOOL_CALLS][{CALL}]", "", [HUE]),
        ('[TOOL_CALLS]weather[ARGS]{"city": "Huế"}', "", [HUE]),
        ('[TOOL_CALLS]weather{"city": "Huế"}[TOOL_CALLS]weather{"city": "Huế"}', "", [HUE, HUE]),
        (f"Let me see.\n```json\n{CALL}\n```", "Let me see.", [HUE]),
        (f"[{CALL}]", "", [HUE]),
        ('{"name": "functions.weather", "arguments": {"city": "Huế"}}', "", [HUE]),
    ],
)
def test_the_forms_in_which_models_write_calls(text: str, left: str, calls: list[dict[str, Any]]) -> None:
    rest, parsed = parse_calls(text, TOOLS)
    assert rest == left
    assert [(call.name, json.loads(call.arguments)) for call in parsed] == [("weather", each) for each in calls]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Huế", "population": 490000}',
        '{"name": "no_such_tool", "arguments": {}}',
        '<tool_call>{"name": "weather", "arguments": {"city": "Hu',
        "The tag <tool_call> begins a call.",
        "```json\n[1, 2, 3]\n```",
        '{"name": "weather", "arguments": "none"}',
        "[" * 5_000,
    ],
)
def test_what_is_no_call_of_a_known_tool_stays_text(text: str) -> None:
    assert parse_calls(text, TOOLS) == (text, [])


def test_text_is_passed_on_until_a_call_may_begin() -> None:
    calls = WrittenCallFilter(TOOLS)
    assert list(calls.feed("Let me see. <tool")) == [TextDelta("Let me see. ")]
    assert list(calls.feed("box> is not one.")) == [TextDelta("<toolbox> is not one.")]
    assert list(calls.feed(f"<tool_call>{CALL}")) == []
    rest, parsed = calls.finish()
    assert (rest, [call.name for call in parsed]) == ("", ["weather"])


def test_a_block_of_code_waits_only_until_its_end() -> None:
    calls = WrittenCallFilter(TOOLS)
    assert list(calls.feed("So:\n```python\nx = 1\n")) == [TextDelta("So:\n")]
    assert list(calls.feed("```\nThat is all.")) == [TextDelta("```python\nx = 1\n```\nThat is all.")]
    assert calls.finish() == ("", [])


def test_text_that_waits_is_bounded() -> None:
    calls = WrittenCallFilter(TOOLS)
    passed = "".join(event.text for _ in range(100) for event in calls.feed("{" + "x" * 999))
    assert len(passed) > 70_000


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("list_tasks", "list_tasks"),
        ("functions.list_tasks", "functions_list_tasks"),
        ("", "unknown_tool"),
        ("日本", "unknown_tool"),
        ("x" * 100, "x" * 64),
    ],
)
def test_names_are_sent_as_every_server_takes_them(name: str, plain: str) -> None:
    assert to_plain_name(name) == plain


@pytest.mark.parametrize(
    ("name", "resolved"),
    [
        ("functions.list_tasks", "list_tasks"),
        ("list_tasks<|channel|>commentary", "list_tasks"),
        (" weather ", "weather"),
        ("weather.list_tasks", "weather.list_tasks"),
        ("my_weather", "my_weather"),
        ("", ""),
    ],
)
def test_a_name_that_holds_one_known_tool_is_that_tool(name: str, resolved: str) -> None:
    assert resolve_name(name, TOOLS) == resolved


@pytest.mark.parametrize("arguments", ['{"date": "2026-1', "null", '"text"', "[1]", '{"a": NaN}', ""])
def test_arguments_are_sent_as_an_object(arguments: str) -> None:
    assert isinstance(json.loads(to_json_text(arguments)), dict)
    assert to_json_text('{"a":  1}') == '{"a":  1}'
