"""Queries of a search in files, and calls that older versions have stored."""

import importlib
import json
from typing import Any

import pytest
from django.apps import apps

from chat.documents.passages import MAX_QUERY, search_queries
from chat.models import Conversation, Message
from chat.tools.files import MAX_VARIANTS, expanded
from llm.types.tools import BadArguments
from tests.conftest import Person


@pytest.mark.parametrize(
    ("question", "searched"),
    [
        ("  ", []),
        ("What is\n the fee?", ["What is the fee?"]),
        ("x" * 1_000, ["x" * 300, "x" * 100]),
        ("手続き" * 200, [("手続き" * 200)[-300:], ("手続き" * 200)[:100]]),
    ],
)
def test_a_question_is_searched_by_its_end_and_its_start(question: str, searched: list[str]) -> None:
    assert search_queries(question) == searched


def test_a_long_question_is_cut_between_words() -> None:
    pasted = " ".join(f"word{number}" for number in range(200))
    end, start = search_queries(f"Look at this: {pasted} So what is the fee?")
    assert end.endswith("So what is the fee?") and end.split()[0] in pasted.split()
    assert start.startswith("Look at this: word0") and start.split()[-1] in pasted.split()
    assert len(end) + len(start) <= MAX_QUERY


def test_each_phrasing_is_searched_once_and_the_models_come_first() -> None:
    question = ["the fee", "And the end"]
    assert expanded({"query": " fee ", "variants": ["fee", "the fee", " "]}, question) == ["fee", *question]
    assert expanded({"query": "Phí", "variants": ["max", "PHI\u0301", "phí\n"]}, ["Max"]) == ["Phí", "max"]


def test_an_old_call_that_is_repeated_leaves_no_newer_question_out() -> None:
    question, many = ["And the end", "The start"], [f"variant {number}" for number in range(9)]
    assert expanded({"query": "fee", "variants": many}, []) == ["fee", *many[:MAX_VARIANTS]]
    used: list[str] = ["fee", "maximum fee"]
    for turn in range(5):
        question = [f"end {turn}", f"start {turn}"]
        used = expanded({"query": used[0], "variants": used[1:]}, question)
        assert used[0] == "fee" and used[-2:] == question and len(used) <= 1 + MAX_VARIANTS


@pytest.mark.parametrize("arguments", [{}, {"query": ""}, {"query": 1}, {"queries": ["fee"]}, {"query": ["fee"]}])
def test_what_is_no_query_is_explained(arguments: dict[str, Any]) -> None:
    with pytest.raises(BadArguments, match=r"“query” must be a text .* “variants”"):
        expanded(arguments, ["Which?"])


@pytest.mark.parametrize("variants", ["fee", [1], None])
def test_what_are_no_variants_is_explained(variants: Any) -> None:
    with pytest.raises(BadArguments, match="“variants” must be a list of texts"):
        expanded({"query": "fee", "variants": variants}, [])


def test_stored_calls_of_an_older_form_are_rewritten(person: Person) -> None:
    def call(name: str, arguments: str) -> dict[str, str]:
        return {"type": "tool_call", "id": "1", "name": name, "arguments": arguments}

    web, broken = call("web_search", '{"queries": ["a"]}'), call("search_files", '{"queries"')
    old = (
        call("search_files", json.dumps({"queries": ["phí", "fee", "Which?"]})),
        call("search_files", '{"queries": ["a"]}'),
    )
    parts = [{"type": "text", "text": "Looking."}, *old, web, broken, call("search_files", '{"queries": []}')]
    place = Conversation.objects.create(owner=person.user)
    row = Message.objects.create(conversation=place, role="assistant", parts=parts, tokens={"exact": 3}, depth=0)
    other = Message.objects.create(conversation=place, role="assistant", parts=[web], tokens={"exact": 3}, depth=0)
    importlib.import_module("chat.migrations.0022_queries_as_the_tool_takes_them").rewrite(apps, None)
    row.refresh_from_db()
    other.refresh_from_db()
    assert [part.get("arguments") for part in row.parts] == [
        None,
        '{"query": "phí", "variants": ["fee", "Which?"]}',
        '{"query": "a"}',
        *(part["arguments"] for part in parts[3:]),
    ]
    assert (row.tokens, other.tokens) == ({}, {"exact": 3})
