"""The rules of docs/develop/context.md, “Memory”."""

from decimal import Decimal
from typing import Any

import pytest

from chat.context.memory import choose_memory, memory_budget
from chat.context.rendering import memory_text
from chat.context.types import Memory, MemoryFact
from llm.tokens import CATCH_ALL, count, tokenizer
from tests.chat.context.asking import assistant, context, error_code, sent, user

TOKENIZER = tokenizer(CATCH_ALL)
HEADING = "What is remembered about the person:"
FACTS = [{"id": "f1", "text": "Lives in Hue."}, {"id": "f2", "text": "Allergic to nuts.", "pinned": True}]


def fact(name: str, words: int = 3, **fields: Any) -> MemoryFact:
    return MemoryFact(name, f"{name} " * words, fields.pop("reason", "matches"), **fields)


def choose(budget: int, chosen: list[MemoryFact] | None = None, matches: list[MemoryFact] | None = None) -> Any:
    memory = Memory(HEADING, "I am a gardener.", (fact("pinned", reason="pinned_fact", required=True),))
    return choose_memory(
        memory, chosen=chosen or [], matches=matches or [], budget=budget, tokenizer=TOKENIZER, overhead=4
    )


def names(facts: Any) -> list[str]:
    return [each.id for each in facts]


@pytest.mark.parametrize(
    ("layout", "order"),
    [
        ("near_end", ["system", "U1", "A1", "persona", "f1+f2", "project_files", "U2", "reminder"]),
        ("files_first", ["system", "project_files", "f1+f2", "U1", "A1", "persona", "U2", "reminder"]),
        ("all_first", ["system", "persona", "project_files", "f1+f2", "U1", "A1", "U2", "reminder"]),
    ],
)
def test_the_section_has_its_place_in_each_layout(layout: str, order: list[str]) -> None:
    block = {"tokens": 1}
    answer = context(
        user("U1"), assistant("A1"), user("U2"), layout=layout, system=block, persona=block, reminder=block,
        project_files=[{"id": "p", "title": "p", "tokens": 1}], memory={"heading": HEADING, "facts": FACTS},
    )  # fmt: skip
    assert sent(answer) == order


def test_the_section_is_one_message_with_the_profile_and_a_line_for_each_fact() -> None:
    memory = {"heading": HEADING, "profile": "I am a gardener.", "facts": FACTS}
    answer = context(user("U1"), memory=memory)
    [section] = [each for each in answer["messages"] if each["section"] == "memory"]
    text = f"{HEADING}\nI am a gardener.\n- Lives in Hue.\n- Allergic to nuts."
    assert (section["role"], section["content"], section["tokens"]) == ("user", text, count(text, CATCH_ALL))
    sources = {each.get("id"): each for each in answer["report"]["sources"] if each["kind"] in ("profile", "fact")}
    assert {name: each["reason"] for name, each in sources.items()} == {
        None: "always", "f1": "matches", "f2": "pinned_fact",
    }  # fmt: skip


def test_without_a_profile_and_facts_there_is_no_section() -> None:
    assert sent(context(user("U1"), memory={"heading": HEADING, "facts": []})) == ["U1"]


def test_facts_make_room_for_the_required_sections_before_anything_is_shortened() -> None:
    memory = {"heading": HEADING, "facts": FACTS}
    whole = context(user("U1"), memory=memory)["report"]["used"]
    answer = context(user("U1"), memory=memory, window=whole - 1)
    assert sent(answer) == ["f2", "U1"]
    [left_out] = [each for each in answer["report"]["sources"] if each["state"] == "left_out"]
    assert (left_out["id"], left_out["reason"], left_out["tokens"]) == ("f1", "no_room", 0)
    least = answer["report"]["used"]
    refused = context(user("U1"), memory=memory, window=least - 1)
    assert error_code(refused) == "context_too_long" and refused["error"]["part"] == "memory"


def test_a_fact_that_is_listed_twice_is_a_bad_request() -> None:
    assert error_code(context(user("U1"), memory={"facts": [FACTS[0], FACTS[0]]})) == "bad_request"


def test_the_budget_is_a_share_of_the_room_and_at_most_a_number() -> None:
    assert memory_budget(10_000, Decimal("0.03"), 600) == 300
    assert memory_budget(100_000, Decimal("0.03"), 600) == 600
    assert memory_budget(-5, Decimal("0.03"), 600) == 0


def test_the_section_stays_within_its_budget_and_shorter_facts_are_still_tried() -> None:
    matches = [fact("a"), fact("long", 200), fact("b")]
    choice = choose(120, matches=matches)
    assert names(choice.memory.facts) == ["pinned", "a", "b"]
    assert names(choice.without_room) == ["long"] and names(choice.added) == ["a", "b"]
    assert 4 + count(memory_text(choice.memory, choice.memory.facts), CATCH_ALL) <= 120


def test_the_profile_and_pinned_facts_are_sent_even_above_the_budget() -> None:
    choice = choose(1, matches=[fact("a")])
    assert names(choice.memory.facts) == ["pinned"] and names(choice.without_room) == ["a"]


def test_facts_of_earlier_messages_stay_in_their_order_and_new_ones_stand_below() -> None:
    first = choose(400, matches=[fact("b"), fact("a")])
    chosen = [fact(name, reason="matched_before") for name in names(first.added)]
    second = choose(400, chosen=chosen, matches=[fact("c"), fact("a")])
    assert names(second.memory.facts) == ["pinned", "b", "a", "c"] and names(second.added) == ["c"]
    text = memory_text(first.memory, first.memory.facts)
    assert memory_text(second.memory, second.memory.facts).startswith(text)


def test_a_pinned_fact_is_sent_once() -> None:
    assert names(choose(400, matches=[fact("pinned"), fact("a")]).memory.facts) == ["pinned", "a"]
