"""`search_conversation` quotes messages that a summary of the branch has replaced, and none that are left out."""

import asyncio
import json
from typing import Any

import pytest

from chat.conversations.marks import mark_turn
from chat.models import Conversation, Message, Summary
from chat.models.words import best, parse_query
from chat.tools.conversation import CUT, NO_RESULTS, QUOTE, SearchConversation, quotation
from llm.models import Model
from llm.types.tools import BadArguments
from tests.application import Application
from tests.chat.citing import ask
from tests.chat.conversations import past
from tests.conftest import Person

FACTS = {
    0: "The harbour's number is Zürich-4711.",
    4: "The key lies under the đá.",
    6: "Olga's ship is named Gull.",
    8: "港口的号码是四七一一。",
}


def summarised(person: Person, *, to: int = 9, aside: tuple[int, ...] = ()) -> Conversation:
    """Return ten pairs with facts. A summary replaces those up to the depth `to`, except those `aside`."""
    conversation = past(person.user, 10)
    rows = list(Message.objects.filter(conversation=conversation).order_by("depth"))
    for depth, fact in {**FACTS, 12: "The later fact is Heron."}.items():
        Message.objects.filter(pk=rows[depth].pk).update(parts=[{"type": "text", "text": fact}])
    _summary(conversation, to=to, aside=aside)
    return conversation


def _summary(conversation: Conversation, *, to: int, aside: tuple[int, ...] = ()) -> None:
    rows = list(Message.objects.filter(conversation=conversation).order_by("depth"))
    Summary.objects.create(
        conversation=conversation,
        first=rows[0],
        last=rows[to],
        messages=to + 1 - len(aside),
        span_start=rows[0].created,
        span_end=rows[to].created,
        sections=[{"name": "Now", "text": "They spoke."}],
        left_aside=[str(rows[depth].pk) for depth in aside],
        tokens_in=1_000,
        tokens_out=20,
        as_of=rows[to].created,
        timezone="UTC",
        prompt_version=1,
    )


def search_results(conversation: Conversation, query: object) -> list[dict[str, Any]]:
    output = asyncio.run(SearchConversation(conversation).run({"query": query}))
    if output.text == NO_RESULTS:
        return []
    quotes: list[dict[str, Any]] = json.loads(output.text)["quotes"]
    return quotes


@pytest.mark.parametrize(
    ("query", "depth"),
    [("zurich", 0), ("what is the harbour's number?", 0), ("da", 4), ('"named gull"', 6), ("港口在哪里", 8)],
)
def test_what_was_replaced_is_quoted_word_for_word(person: Person, query: str, depth: int) -> None:
    conversation = summarised(person)
    quotes = {quote["position"]: quote for quote in search_results(conversation, query)}
    row = Message.objects.get(conversation=conversation, depth=depth)
    when = f"{row.created.astimezone(person.user.zone):%Y-%m-%d %H:%M}"
    assert quotes[depth + 1] == {"position": depth + 1, "who": "user", "when": when, "quote": FACTS[depth]}


def test_rare_words_come_before_frequent_ones_and_of_equals_the_newest(person: Person) -> None:
    conversation = summarised(person, to=19)
    rows = list(Message.objects.filter(conversation=conversation).order_by("depth"))
    ids = [row.pk for row in rows]
    assert best(ids, parse_query("word1 word2 harbour"), 2) == [rows[0].pk, rows[19].pk]
    assert best(ids, parse_query('"word1 word3" 港口? nowhere'), 2) == [rows[8].pk]
    assert best(ids[1:], parse_query("harbour"), 2) == []


def test_what_is_sent_as_it_is_or_left_out_is_not_found(person: Person) -> None:
    conversation = summarised(person, aside=(4, 5, 6, 7))
    assert search_results(conversation, "Heron") == []  # after the summary
    assert search_results(conversation, "Gull") == []  # pinned when it was written
    mark_turn(user=person.user, message=Message.objects.get(conversation=conversation, depth=4), mark="excluded")
    assert search_results(conversation, "key") == []
    assert search_results(conversation, "harbour")
    mark_turn(user=person.user, message=Message.objects.get(conversation=conversation, depth=0), mark="excluded")
    assert search_results(conversation, "harbour") == []


@pytest.mark.parametrize("query", [None, 7, "", "?!", ["harbour"]])
def test_a_query_without_words_is_refused(person: Person, query: object) -> None:
    with pytest.raises(BadArguments, match="words to look for"):
        search_results(summarised(person), query)


@pytest.mark.parametrize("blank", [" ", ""])
def test_of_a_long_message_the_place_with_most_words_is_quoted(blank: str) -> None:
    text = f"harbour {('x' * 9 + blank) * 500} the harbour number 4711 {('y' * 9 + blank) * 500}"
    quoted = quotation(text, parse_query("harbour number"))
    assert "the harbour number 4711" in quoted and quoted.strip(CUT) in text
    assert quoted.startswith(CUT) and quoted.endswith(CUT) and len(quoted) <= QUOTE + 2 * len(CUT)


def test_a_model_with_tools_gets_it_with_the_summary_and_the_transcript_shows_it(
    application: Application, person: Person, caller_of_tools: Model
) -> None:
    conversation = summarised(person)
    path, draft = f"conversations/{conversation.pk}/plan/", {"text": "And?", "model": str(caller_of_tools.pk)}
    assert "search_conversation" in person.caller.post(path, draft, expect=200)["tools"]
    call = {"tool_calls": [{"name": "search_conversation", "arguments": {"query": "zurich"}}]}
    ended = ask(person, str(conversation.pk), caller_of_tools, "Which number?", call, {"text": "4711."})
    part = next(part for part in ended["parts"] if part["type"] == "tool_call")
    assert part["name"] == "search_conversation" and "Zürich-4711" in json.dumps(ended["parts"], ensure_ascii=False)
    Summary.objects.filter(conversation=conversation).delete()
    assert "search_conversation" not in person.caller.post(path, draft, expect=200)["tools"]


def test_of_numbers_the_very_one_is_found_among_longer_ones(person: Person) -> None:
    conversation = past(person.user, 30)
    rows = list(Message.objects.filter(conversation=conversation, role="user").order_by("depth"))
    for number, row in enumerate(rows):
        Message.objects.filter(pk=row.pk).update(parts=[{"type": "text", "text": f"The paint in box {number}."}])
    _summary(conversation, to=59)
    for number in (1, 2, 17):
        assert f"The paint in box {number}." in [
            quote["quote"] for quote in search_results(conversation, f"paint box {number}")
        ]
