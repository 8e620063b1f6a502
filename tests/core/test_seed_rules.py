"""Tests of the rules that every prompt of the tests is held against."""

from typing import Any

import pytest

from tests.scripted_model.seed_rules import DOCUMENTS_LINE, OMISSION_LINE, RULES, broken_rules

SYSTEM, QUESTION, ANSWER = ({"role": role, "content": role} for role in ("system", "user", "assistant"))
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": {"name": "x", "arguments": "{}"}}]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "found"}
FILE = {"role": "user", "content": DOCUMENTS_LINE + '\n{"documents": [{"document": 1, "title": "A", "contents": ""}]}'}
OTHER_FILE = {"role": "user", "content": '{"documents": [{"document": 1, "title": "B", "contents": ""}]}'}
WITHOUT_NUMBER = {"role": "user", "content": '{"documents": [{"title": "B", "contents": ""}]}'}
GAP = {"role": "user", "content": OMISSION_LINE}
BREAKS: dict[str, list[list[dict[str, Any]]]] = {
    "a_message_beside_the_system": [[SYSTEM]],
    "the_newest_message_is_to_be_answered": [[SYSTEM, QUESTION, ANSWER]],
    "the_system_comes_first": [[QUESTION, SYSTEM, QUESTION], [SYSTEM, QUESTION, ANSWER, SYSTEM, QUESTION]],
    "calls_and_results_stay_together": [
        [SYSTEM, QUESTION, RESULT],
        [SYSTEM, QUESTION, CALL, QUESTION],
        [SYSTEM, QUESTION, CALL, RESULT, RESULT],
        [SYSTEM, QUESTION, CALL, GAP, RESULT],
    ],
    "documents_are_json_with_numbers": [[SYSTEM, FILE, OTHER_FILE, QUESTION], [SYSTEM, WITHOUT_NUMBER, QUESTION]],
    "documents_of_a_turn_are_one_message": [[SYSTEM, FILE, FILE, FILE, QUESTION]],
    "one_line_for_what_was_left_out": [[SYSTEM, GAP, QUESTION, ANSWER, GAP, QUESTION]],
}


@pytest.mark.parametrize(
    ("rule", "messages"), [(rule, messages) for rule, prompts in BREAKS.items() for messages in prompts]
)
def test_a_prompt_that_breaks_a_rule_is_named(rule: str, messages: list[dict[str, Any]]) -> None:
    assert rule in {sentence.partition(":")[0] for sentence in broken_rules({"messages": messages})}


def test_each_rule_has_a_prompt_that_breaks_it() -> None:
    assert {rule.__name__ for rule in RULES} == set(BREAKS)


def test_a_prompt_with_everything_breaks_no_rule() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url"}]}]
    messages = [SYSTEM, SYSTEM, GAP, QUESTION, CALL, RESULT, ANSWER, FILE, FILE, *parts, CALL, RESULT, QUESTION]
    assert broken_rules({"messages": messages}) == []
