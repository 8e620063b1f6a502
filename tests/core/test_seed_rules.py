"""Tests of the rules that every prompt of the tests is held against."""

from typing import Any

import httpx
import pytest
from django.utils import timezone

from chat.models import Conversation, Turn
from llm.models import Model
from tests.application import Application
from tests.chat.conversations import past
from tests.conftest import Person
from tests.kept_promises import broken_promises
from tests.scripted_model.prompts import (
    Prompt,
    PromptMessage,
    ToolCall,
    of_completions,
    of_messages,
    of_responses,
)
from tests.scripted_model.seed_rules import (
    DOCUMENTS_LINE,
    OMISSION_LINE,
    REMINDER_HEADING,
    RULES,
    STUB,
    broken_rules,
)

SYSTEM, QUESTION, ANSWER = (PromptMessage(role, role) for role in ("system", "user", "assistant"))
CALL = PromptMessage("assistant", "", (ToolCall("a", "search_files"),))
JSON = '{"documents": [{"document": 1, "title": "A", "contents": ""}]}'
RESULT = PromptMessage("tool", JSON, answers="a")
OLD_RESULT = PromptMessage("tool", STUB, answers="a")
FILE = PromptMessage("user", f"{DOCUMENTS_LINE}\n{JSON}")
OTHER_FILE = PromptMessage("user", '{"documents": [{"document": 1, "title": "B", "contents": ""}]}')
WITHOUT_NUMBER = PromptMessage("user", '{"documents": [{"title": "B", "contents": ""}]}')
FILE_AND_QUESTION = PromptMessage("user", f"{FILE.text}\n\nWhy?")
GAP = PromptMessage("user", OMISSION_LINE)
PERSONA = PromptMessage("user", "# Persona “Pirate”\nSay arr.")
CITES = PromptMessage("system", "Be kind.\n\n# Citations\nCite each document.\n\n# Tools\nAnswer.\nsearch_files: when.")
REMINDER = PromptMessage("user", f"{REMINDER_HEADING}\nCite the documents you use.")
TASKS = PromptMessage("system", "# Tasks\nTasks of today, 2026-11-27:")
SUMMARY = PromptMessage("system", "Summary of this conversation up to now")
BREAKS: dict[str, list[list[PromptMessage]]] = {
    "a_message_beside_the_system": [[SYSTEM]],
    "the_newest_message_is_to_be_answered": [[SYSTEM, QUESTION, ANSWER]],
    "the_system_comes_first": [[QUESTION, SYSTEM, QUESTION], [SYSTEM, QUESTION, ANSWER, SYSTEM, QUESTION]],
    "tasks_come_before_the_summary": [[SYSTEM, SUMMARY, TASKS, QUESTION]],
    "questions_and_answers_alternate": [[SYSTEM, QUESTION, ANSWER, ANSWER, QUESTION]],
    "calls_and_results_stay_together": [
        [SYSTEM, QUESTION, RESULT],
        [SYSTEM, QUESTION, CALL, QUESTION],
        [SYSTEM, QUESTION, CALL, RESULT, RESULT],
        [SYSTEM, QUESTION, CALL, GAP, RESULT],
    ],
    "documents_are_json_with_numbers": [[SYSTEM, FILE, OTHER_FILE, QUESTION], [SYSTEM, WITHOUT_NUMBER, QUESTION]],
    "documents_of_a_turn_are_one_message": [[SYSTEM, FILE, FILE, FILE, QUESTION]],
    "results_have_no_line_above_their_documents": [
        [CITES, QUESTION, CALL, PromptMessage("tool", FILE.text, answers="a"), REMINDER]
    ],
    "files_stand_above_a_message": [[SYSTEM, QUESTION, FILE], [SYSTEM, FILE, ANSWER, QUESTION]],
    "instructions_move_along": [
        [SYSTEM, QUESTION, ANSWER, PERSONA, QUESTION, ANSWER, QUESTION],
        [SYSTEM, PERSONA, QUESTION, ANSWER, PERSONA, QUESTION],
    ],
    "results_of_older_turns_are_stubs": [[SYSTEM, QUESTION, CALL, RESULT, ANSWER, QUESTION]],
    "citations_are_asked_for_after_a_search": [
        [SYSTEM, QUESTION, CALL, RESULT, REMINDER],
        [CITES, QUESTION, CALL, RESULT],
        [CITES, QUESTION, CALL, RESULT, REMINDER, CALL, RESULT],
    ],
    "documents_of_the_newest_turn_are_to_be_cited": [[SYSTEM, QUESTION, ANSWER, FILE, QUESTION]],
    "reminders_are_of_the_newest_turn": [[SYSTEM, QUESTION, REMINDER, ANSWER, QUESTION]],
    "guidance_is_for_tools_that_are_offered": [[CITES, QUESTION]],
    "one_line_for_what_was_left_out": [[SYSTEM, GAP, QUESTION, ANSWER, GAP, QUESTION]],
}
KEEPS = {
    "everything": [
        *(CITES, TASKS, SUMMARY, GAP, QUESTION, CALL, OLD_RESULT, ANSWER, FILE, QUESTION, ANSWER),
        *(PERSONA, FILE, FILE, QUESTION),
    ],
    "a search": [CITES, QUESTION, ANSWER, PERSONA, FILE, QUESTION, CALL, RESULT, CALL, RESULT, REMINDER],
    "a search of a small model": [CITES, QUESTION, ANSWER, REMINDER, QUESTION, CALL, RESULT],
    "a search in an append-only turn": [CITES, QUESTION, CALL, RESULT, REMINDER, CALL, RESULT, REMINDER],
    "a layout for caches": [SYSTEM, PERSONA, FILE, TASKS, QUESTION, ANSWER, QUESTION],
    "files in one message with their question": [SYSTEM, FILE_AND_QUESTION, ANSWER, QUESTION],
}


def rules_of(messages: list[PromptMessage], tool: str = "web_search") -> set[str]:
    return {sentence.partition(":")[0] for sentence in broken_rules(Prompt(tuple(messages), (tool,)))}


@pytest.mark.parametrize(
    ("rule", "messages"), [(rule, messages) for rule, prompts in BREAKS.items() for messages in prompts]
)
def test_a_prompt_that_breaks_a_rule_is_named(rule: str, messages: list[PromptMessage]) -> None:
    assert rule in rules_of(messages)


def test_each_rule_has_a_prompt_that_breaks_it() -> None:
    assert {rule.__name__ for rule in RULES} == set(BREAKS)


@pytest.mark.parametrize("name", KEEPS)
def test_a_prompt_that_the_documents_describe_breaks_no_rule(name: str) -> None:
    assert rules_of(KEEPS[name], "search_files") == set()


def test_a_prompt_reads_alike_in_each_protocol() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    completions = {
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "Look"}, picture]},
            {"role": "user", "content": "Then search"},
            {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "a", "function": {"name": "find"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "Nothing"},
        ],
        "tools": [{"type": "function", "function": {"name": "find", "description": "Finds."}}],
    }
    messages = {
        "system": [{"type": "text", "text": "Be kind."}],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "image"}, *({"type": "text", "text": text} for text in ("Look", "Then search"))],
            },
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "a", "name": "find"}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "Nothing"}]}
                ],
            },
        ],
        "tools": [{"name": "find", "description": "Finds."}, {"name": "earlier"}],
    }
    responses = {
        "instructions": "Be kind.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Look"}, {"type": "input_image"}]},
            {"role": "user", "content": "Then search"},
            {"type": "reasoning", "summary": []},
            {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "a", "name": "find", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "Nothing"},
        ],
        "tools": [{"type": "function", "name": "find", "description": "Finds."}],
    }
    read = of_completions(completions)
    assert [message.text for message in read.messages] == ["Be kind.", "Look", "Then search", "I look.", "Nothing"]
    assert read.messages[3].calls == (ToolCall("a", "find"),) and read.messages[4].answers == "a"
    assert read.tools == ("find",)
    assert of_messages(messages) == read
    assert of_responses(responses) == read


def test_a_prompt_above_its_window_and_a_question_that_no_prompt_has_are_named(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    """The prompt comes from this test, not from the product, so the product's rules do not stop it."""
    since = timezone.now()
    model = Model.objects.create(provider=scripted_model_row.provider, name="tiny", context_window=256)
    body: Any = {"model": "tiny", "messages": [{"role": "user", "content": "one word more " * 200}]}
    httpx.post(f"{application.model.openai_url}/chat/completions", json=body)
    [sentence] = broken_promises(application.model, since)
    assert sentence.startswith("no_limit_is_exceeded: 60") and "window of 256" in sentence
    application.model.forget()
    place: Conversation = past(person.user, 1)
    question, answer = place.messages.order_by("depth")
    Turn.objects.create(
        conversation=place, owner=person.user, user_message=question, answer=answer, model=model, status="done",
        started=timezone.now(),
    )  # fmt: skip
    body["messages"][0]["content"] = question.text[:-1]
    httpx.post(f"{application.model.openai_url}/chat/completions", json=body)
    assert [each.partition(":")[0] for each in broken_promises(application.model, since)] == ["the_question_is_whole"]
    body["messages"][0]["content"] = question.text
    httpx.post(f"{application.model.openai_url}/chat/completions", json=body)
    assert broken_promises(application.model, since) == []
    place.delete()
    model.delete()
    assert application.model.take_broken_rules() == []
