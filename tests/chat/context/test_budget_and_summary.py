"""The document budget and the summary plan, in cases that the published vectors do not cover.

Rules: docs/develop/context.md, “Files and projects” and “Summaries”.
"""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chat.context.summary import SECTION_SHARES, Bounds, SummaryMessage, bounds_by_share, plan_summary
from tests.chat.context.asking import Json, assistant, call, plan, result, user


def summary(*messages: Json, **fields: Any) -> Json:
    request = {"window": 12_288, "ceiling": 7_800, "floor": 3_000, "used": 8_000, "fixed": 800, **fields}
    return plan("summary", {**request, "messages": list(messages)})


def pairs(count: int, tokens: int = 100) -> list[Json]:
    return [message for n in range(count) for message in (user(f"u{n}", tokens), assistant(f"a{n}", tokens))]


def test_the_other_reserves_shrink_the_document_budget() -> None:
    answer = plan(
        "budget",
        {
            "window": 1_000,
            "prompts": [100],
            "reserved_output": 100,
            "expected_user": 50,
            "buffer": 10,
            "tools_tokens": 40,
        },
    )
    assert answer == {"available": 700, "offered": 350, "selectable_up_to": 275}


def test_a_wider_margin_lowers_the_line_never_below_nothing() -> None:
    assert plan("budget", {"window": 8_000, "prompts": [500], "select_margin": 5_000})["selectable_up_to"] == 0


def test_no_answer_about_a_candidate_that_was_not_asked_for() -> None:
    assert "accepts_candidate" not in plan("budget", {"window": 8_000, "prompts": [], "selected": [1]})


def test_other_profiles_take_shares_of_what_is_not_fixed() -> None:
    assert bounds_by_share(10_001, 0) == Bounds(ceiling=6_500, floor=2_500, keep_recent=8)
    assert bounds_by_share(10_001, 6_001) == Bounds(ceiling=8_601, floor=7_001, keep_recent=8)
    assert bounds_by_share(1_000, 6_001) == Bounds(ceiling=6_001, floor=6_001, keep_recent=8)
    assert sum(SECTION_SHARES.values()) == 1


def test_beside_a_large_project_summaries_are_rare_and_keep_several_messages() -> None:
    limit, fixed, turn = 11_017, 6_480, 240  # a project of 57 %
    bounds = bounds_by_share(limit, fixed)
    summary_tokens, summaries, sent = 0, 0, list[SummaryMessage]()
    for number in range(30):
        sent += [SummaryMessage(f"u{number}", "user", 120), SummaryMessage(f"a{number}", "assistant", turn - 120)]
        used = fixed + summary_tokens + sum(message.tokens for message in sent)
        planned = plan_summary(sent, bounds, used=used, fixed=fixed)
        if planned:
            summaries, summary_tokens = summaries + 1, planned.summary_tokens
            sent = sent[len(planned.summarise) :]
            assert len(sent) >= 4
    assert summaries <= 4


def test_messages_before_the_first_question_are_a_turn_that_is_summarised_first() -> None:
    answer = summary(assistant("hello", 50), *pairs(5), keep_recent=4)
    assert answer["summarise"] == ["hello", "u0", "a0", "u1", "a1", "u2", "a2"]


def test_an_interrupted_turn_counts_as_one_message() -> None:
    answer = summary(*pairs(2), user("lost"), user("u9"), assistant("a9"), keep_recent=3)
    assert answer["keep"] == ["lost", "u9", "a9"]


def test_a_call_is_no_final_answer() -> None:
    running = [user("u8"), call("t8", "c"), result("r8", "c"), assistant("a8")]
    answer = summary(*pairs(3), *running, keep_recent=2)
    assert answer["keep"] == ["u8", "t8", "r8", "a8"]


def test_nothing_kept_verbatim_still_keeps_the_last_turn() -> None:
    assert summary(*pairs(3), keep_recent=0)["keep"] == ["u2", "a2"]


def test_a_conversation_without_messages_has_nothing_to_summarise() -> None:
    assert summary() == {"compress": False, "reason": "nothing_to_summarise"}


def test_shrinking_stops_at_the_midpoint() -> None:
    # 800 fixed, 256 for the summary: a tail of 4,344 ends exactly at the midpoint of 5,400.
    assert len(summary(*pairs(2), *pairs_named(4, 543))["keep"]) == 8
    assert len(summary(*pairs(2), *pairs_named(4, 544))["keep"]) == 6


def pairs_named(count: int, tokens: int) -> list[Json]:
    return [{**message, "id": f"big-{message['id']}"} for message in pairs(count, tokens)]


summary_messages = st.lists(
    st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.integers(0, 2_000), st.booleans()), max_size=30
).map(lambda rows: [SummaryMessage(f"m{n}", *row) for n, row in enumerate(rows)])


@given(summary_messages, st.integers(0, 12), st.integers(0, 3_000))
def test_nothing_is_ever_hidden(messages: list[SummaryMessage], keep_recent: int, fixed: int) -> None:
    planned = plan_summary(messages, Bounds(7_800, 3_000, keep_recent), used=7_801, fixed=fixed)
    if planned:
        assert planned.summarise + planned.keep == [message.id for message in messages]
        assert planned.summarise and planned.keep
        sent = messages[len(planned.summarise) :]
        assert sent[0].role == "user"
        assert planned.after == planned.summary_tokens + fixed + sum(message.tokens for message in sent)
        assert planned.summary_tokens >= 256 and planned.floor_reached == (planned.after <= 3_000)
