"""The rules of docs/develop/context.md, “Order” and “The room”, that the published vectors do not pin."""

import re
from typing import Any

import pytest

from chat.context.rendering import shortened_result
from llm.tokens import CATCH_ALL, count, tokenizer
from llm.types.model_call import StoredResult
from tests.chat.context.asking import (
    assistant,
    call,
    context,
    error_code,
    file,
    message_of,
    result,
    sent,
    user,
)

NOTE = "[Earlier messages were left out to fit the context.]"
MARKER = "[System prompt truncated to fit context]"
PROSE = "Khi trời mưa to, the river rises; 河水上涨了 🦜. " * 400


def test_every_section_has_its_role() -> None:
    block = {"tokens": 1}
    answer = context(
        user("U1", files=[file("f", 1)]), call("TC", "c"), result("TR", "c", 1),
        system=block, tasks=block, summary=block, persona=block, project_files=[file("p", 1)], file_listing=block,
        reminder=block,
    )  # fmt: skip
    assert [(message["section"], message["role"]) for message in answer["messages"]] == [
        ("system", "system"), ("tasks", "system"), ("summary", "system"), ("persona", "user"),
        ("project_files", "user"), ("file_listing", "user"), ("file", "user"), ("current", "user"),
        ("current", "assistant"), ("current", "tool"), ("reminder", "user"),
    ]  # fmt: skip


def test_a_turn_is_never_split() -> None:
    turn = [user("U1", 10), call("TC", "c", tokens=10), result("TR", "c"), assistant("A1", 10)]
    assert sent(context(*turn, user("U2", 10), window=45)) == ["U1", "TC", "TR", "A1", "U2"]
    assert sent(context(*turn, user("U2", 10), window=44)) == ["U2"]


def test_tool_results_are_shortened_oldest_first_and_only_as_far_as_needed() -> None:
    running = [call("T1", "a"), result("R1", "a", 900), call("T2", "b"), result("R2", "b", 900)]
    answer = context(user("U1", 5), *running, window=1_500)
    costs = {message["source"]: message["tokens"] for message in answer["messages"]}
    assert costs == {"U1": 5, "T1": 5, "R1": 585, "T2": 5, "R2": 900} and answer["report"]["left"] == 0


def test_a_tool_result_is_never_shortened_below_256_tokens() -> None:
    running = [call("T1", "a"), result("R1", "a", 900), call("T2", "b"), result("R2", "b", 900)]
    answer = context(user("U1", 5), *running, window=700)
    assert [message_of(answer, name)["tokens"] for name in ("R1", "R2")] == [256, 429]
    assert error_code(context(user("U1", 5), *running, window=526)) == "context_too_long"
    assert context(user("U1", 5), *running, window=527)["report"]["used"] == 527


def test_overhead_and_images_do_not_count_among_a_results_256_tokens() -> None:
    running = [call("T1", "a"), result("R1", "a", 900, images=[{"id": "i", "tokens": 100}])]
    below = count("These images belong to the tool results above: i.") + 100
    answer = context(user("U1", 5), *running, window=5 + 5 + 256 + below + 4 * 4, message_overhead=4)
    assert message_of(answer, "R1")["tokens"] == 256 + 4
    assert error_code(context(user("U1", 5), *running, window=377, message_overhead=4)) == "context_too_long"


def test_a_short_tool_result_is_passed_over() -> None:
    running = [call("T1", "a"), result("R1", "a", 256), call("T2", "b"), result("R2", "b", 900)]
    answer = context(user("U1", 5), *running, window=1_000)
    assert [message_of(answer, name)["tokens"] for name in ("R1", "R2")] == [256, 729]


def test_a_shortened_result_keeps_head_and_tail_around_a_counted_marker() -> None:
    answer = context(user("U1", 5), call("TC", "c"), result("TR", "c", None, text=PROSE), window=1_000)
    shortened = message_of(answer, "TR")
    head, left_out, tail = re.split(r"\n\[… (\d+) tokens left out …\]\n", shortened["content"])
    assert PROSE.startswith(head) and PROSE.endswith(tail) and abs(count(head) - count(tail)) <= 4
    assert shortened["tokens"] == count(shortened["content"]) >= 256
    assert answer["report"]["left"] <= 3
    assert abs(count(PROSE) - count(head) - count(tail) - int(left_out)) <= 4


@pytest.mark.parametrize("limit", [300, 1_000, 4_000])
def test_a_result_shortened_before_it_is_stored_stays_within_its_limit(limit: int) -> None:
    whole = StoredResult(tokens=count(PROSE), characters=len(PROSE), stored=len(PROSE), id="r1")
    text, stored = shortened_result(PROSE, limit, whole, tokenizer(CATCH_ALL))
    head, tail = text[: stored.head], text[stored.head + stored.marker :]
    assert PROSE.startswith(head) and PROSE.endswith(tail) and abs(count(head) - count(tail)) <= 4
    assert limit - 40 <= count(text) <= limit


def test_a_result_at_its_shortest_still_has_256_tokens_in_any_script() -> None:
    for text in ("🪿" * 900, "𒀀" * 900, "a𒀀" * 900, "word " * 900, "字" * 3_000, "\u0301" * 3_000):
        first = [call("T1", "a", tokens=0), result("R1", "a", None, text=text)]
        second = [call("T2", "b", tokens=0), result("R2", "b", 10_000)]
        shortened = message_of(context(user("U1", 5), *first, *second, window=900), "R1")
        assert 256 <= shortened["tokens"] == count(shortened["content"]) <= 261


def test_a_result_that_would_not_get_shorter_stays_as_it_is() -> None:
    text = "𒀀" * 64 + "a"
    answer = context(user("U1", 5), call("TC", "c", tokens=0), result("TR", "c", None, text=text), window=261)
    assert count(text) == 257 and error_code(answer) == "context_too_long"
    assert answer["error"]["sections"] == {"current": 262}


def test_an_upload_that_does_not_fit_is_named_with_its_size_and_room() -> None:
    files = [file("f", 300, title="First.pdf"), file("g", 500, title="Second.pdf"), file("h", 900, title="Third.pdf")]
    error = context(user("U1", 10, files=files), system={"tokens": 100}, message_overhead=4)["error"]
    room = 1_000 - 104 - 14 - 4
    assert error["code"] == "file_too_long"
    assert (error["file"], error["tokens"], error["room"]) == ("h", 900, room - 800)
    assert all(part in error["message"] for part in ("Third.pdf", "too long by 1,054 %"))


def test_the_first_file_too_many_is_named_not_the_largest() -> None:
    files = [file("f", 300), file("g", 800), file("h", 2_000)]
    error = context(user("U1", 10, files=files))["error"]
    assert (error["code"], error["file"], error["room"]) == ("file_too_long", "g", 690)


def test_a_rendered_file_that_does_not_fit_is_named() -> None:
    files = [file("f", text="short"), file("g", text="word " * 5_000)]
    error = context(user("U1", 10, files=files))["error"]
    assert (error["code"], error["file"]) == ("file_too_long", "g") and error["tokens"] > error["room"] > 900


def test_results_are_shortened_before_a_file_is_refused() -> None:
    answer = context(user("U1", 10, files=[file("f", 500)]), call("TC", "c"), result("TR", "c", 800))
    assert answer["ok"] and message_of(answer, "TR")["tokens"] == 485


def test_an_upload_is_not_blamed_for_what_would_not_fit_without_it() -> None:
    answer = context(user("U1", 10, files=[file("f", 5)]), system={"tokens": 2_000})
    assert error_code(answer) == "context_too_long"


def test_context_too_long_tells_the_cost_of_every_section() -> None:
    error = context(user("U1", 600), call("TC", "c"), result("TR", "c", 100), system={"tokens": 900})["error"]
    assert error["sections"] == {"system": 900, "current": 705} and error["limit"] == 1_000
    assert "system prompt" in error["message"]


@pytest.mark.parametrize(
    ("request_", "part", "words"),
    [
        ({"system": {"tokens": 130}, "window": 4_300, "tools_tokens": 6_500}, "tools", "definitions of the tools"),
        (
            {"system": {"tokens": 130}, "window": 700, "reserved_output": 1_024},
            "reserve",
            "is the reserve, mainly for the answer",
        ),
        ({"persona": {"tokens": 6_000, "replaces_system": True}}, "system", "the persona's prompt, which replaces"),
        ({"system": {"tokens": 6_000}}, "system", "too long by 502 %. The largest part is the system"),
        ({"project_files": [file("p", 2_000)]}, "project_files", "take some out of the project"),
        ({"tasks": {"tokens": 2_000}}, "tasks", "today's tasks"),
        ({"reminder": {"tokens": 2_000}, "tools_tokens": 300}, "reminder", "is the reminder: shorten it"),
    ],
)
def test_context_too_long_names_the_part_that_is_to_blame(request_: dict[str, Any], part: str, words: str) -> None:
    error = context(user("U1", 20), **request_)["error"]
    assert (error["code"], error["part"]) == ("context_too_long", part)
    assert words in error["message"]


def test_a_message_that_is_too_long_is_blamed_itself() -> None:
    error = context(user("U1", 3_000), system={"tokens": 100})["error"]
    assert error["part"] == "current" and "shorten the message" in error["message"]


def test_a_replacing_persona_does_not_silence_a_missing_system_prompt() -> None:
    answer = context(user("U1"), persona={"text": "You are Ada.", "replaces_system": True})
    assert sent(answer) == ["system", "U1"] and answer["messages"][0]["role"] == "system"


def test_the_omission_note_stands_where_messages_are_missing() -> None:
    turns = [user("U1", 900), assistant("A1", 90), user("U2", 10, files=[file("f", 5)]), assistant("A2", 10)]
    answer = context(*turns, user("U3", 10), system={"tokens": 9}, summary={"tokens": 9}, omission_note=True)
    assert sent(answer) == ["system", "summary", "omitted", "f", "U2", "A2", "U3"]
    note = message_of(answer, "omitted")
    assert (note["content"], note["role"], note["source"], note["tokens"]) == (NOTE, "user", None, count(NOTE))


def test_the_omission_note_stands_where_history_would_be() -> None:
    answer = context(user("U1", 2_000), user("U2"), persona={"tokens": 5}, omission_note=True)
    assert sent(answer) == ["omitted", "persona", "U2"]


def test_the_omission_note_never_pushes_a_message_out() -> None:
    turns = [user("U1", 900), user("U2", 50), user("U3", 50)]
    assert sent(context(*turns, window=100 + count(NOTE) - 1, omission_note=True)) == ["U2", "U3"]
    assert sent(context(*turns, window=100 + count(NOTE), omission_note=True)) == ["omitted", "U2", "U3"]


def test_the_omission_note_is_for_what_priority_skipped_too() -> None:
    turns = [user("U1", 900), assistant("A1", 90), user("U2", 10), assistant("A2", 10)]
    assert sent(context(*turns, user("U3", 10), policy="priority", omission_note=True))[0] == "omitted"
    answer = context(*turns, user("U3", 10), policy="priority", omission_note=True, window=2_000)
    assert sent(answer) == ["U1", "A1", "U2", "A2", "U3"]


def test_messages_without_a_partner_are_left_out_and_call_for_the_omission_note() -> None:
    answer = context(user("U1"), result("TR", "lost"), user("U2"), omission_note=True)
    assert sent(answer) == ["U1", "omitted", "U2"]
    assert sent(context(user("U1"), result("TR", "lost"), omission_note=True)) == ["omitted", "U1"]


def test_stubs_and_a_cut_system_prompt_do_not_call_for_the_omission_note() -> None:
    turns = [user("U1"), call("TC", "c"), result("TR", "c"), assistant("A1"), user("U2")]
    assert "omitted" not in sent(context(*turns, omission_note=True))
    answer = context(*turns, system={"tokens": 700}, policy="priority", omission_note=True)
    assert answer["report"]["used"] < 1_000 and "omitted" not in sent(answer)


def test_priority_cuts_a_system_prompt_on_a_token_boundary_with_the_marker() -> None:
    answer = context(user("U1", 5), system={"text": PROSE}, policy="priority", message_overhead=4)
    system = message_of(answer, "system")
    beginning = system["content"].removesuffix(f"\n{MARKER}")
    assert PROSE.startswith(beginning) and beginning != system["content"]
    assert system["tokens"] == count(system["content"]) + 4 and 295 <= system["tokens"] <= 300


def test_priority_floors_the_share_of_a_cut_system_prompt() -> None:
    answer = context(user("U1", 5), system={"tokens": 900}, policy="priority", window=999)
    assert message_of(answer, "system")["tokens"] == 299


def test_priority_shortens_tool_results_before_the_system_prompt() -> None:
    running = [user("U1", 300), call("TC", "c", tokens=0), result("TR", "c", 600)]
    answer = context(*running, system={"tokens": 400}, policy="priority")
    assert [message["tokens"] for message in answer["messages"]] == [400, 300, 0, 300]
    answer = context(user("U1", 500), *running[1:], system={"tokens": 400}, policy="priority")
    assert [message["tokens"] for message in answer["messages"]] == [244, 500, 0, 256]


def test_priority_removes_a_system_prompt_that_would_keep_fifty_tokens() -> None:
    assert sent(context(user("U1", 950), system={"tokens": 400}, policy="priority")) == ["U1"]
    answer = context(user("U1", 949), system={"tokens": 400}, policy="priority")
    assert message_of(answer, "system")["tokens"] == 51


def test_priority_names_a_file_that_does_not_fit_even_without_the_system_prompt() -> None:
    error = context(user("U1", 10, files=[file("f", 995)]), system={"tokens": 10}, policy="priority")["error"]
    assert (error["code"], error["room"]) == ("file_too_long", 990)


def test_priority_skips_a_group_that_does_not_fit_even_with_stubs() -> None:
    turns = [
        user("U1", 5), call("T1", "a", tokens=20), result("R1", "a", 20), assistant("A1", 5),
        user("U2", 5), call("T2", "b", tokens=500), result("R2", "b", 10), assistant("A2", 5),
    ]  # fmt: skip
    answer = context(*turns, user("U3", 20), policy="priority", window=80)
    assert sent(answer) == ["U1", "T1", "R1", "A1", "U2", "A2", "U3"]
    assert answer["report"]["dropped"] == ["T2", "R2"]


def test_priority_keeps_question_and_answer_together_with_their_file() -> None:
    turns = [user("U1", 10), assistant("A1", 10), user("U2", 10, files=[file("f", 60)]), assistant("A2", 10)]
    answer = context(*turns, user("U3", 10), policy="priority", window=80)
    assert sent(answer) == ["U1", "A1", "f", "U2", "A2", "U3"] and answer["report"]["dropped"] == []
    answer = context(*turns, user("U3", 10), policy="priority", window=80, file_stub_tokens=60)
    assert sent(answer) == ["U1", "A1", "U3"] and answer["report"]["dropped"] == ["f", "U2", "A2"]


def test_priority_takes_the_newest_of_two_groups_first() -> None:
    turns = [
        user("U1", 900), call("T1", "a", tokens=10), result("R1", "a", 50), call("T2", "b", tokens=10),
        result("R2", "b", 50),
    ]  # fmt: skip
    answer = context(*turns, user("U2", 10), policy="priority", window=90)
    assert [(message["source"], message["tokens"]) for message in answer["messages"]] == [
        ("T1", 10), ("R1", 5), ("T2", 10), ("R2", 50), ("U2", 10),
    ]  # fmt: skip
