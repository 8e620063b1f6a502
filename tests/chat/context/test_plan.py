"""The fine print of `manage.py plan` (docs/develop/context.md, “manage.py plan”), a sentence a test."""

import json
from typing import Any

from llm.tokens import count
from tests.chat.context.asking import (
    BARE,
    Json,
    answers,
    assistant,
    call,
    context,
    error_code,
    file,
    message_of,
    plan,
    result,
    sent,
    user,
)

MINIMAL = {**BARE, "messages": [user("U1")]}
PREFIX = "Here are some documents provided for context, they may not all be relevant:"


def test_margins_are_exact_decimals_and_floored() -> None:
    assert context(user("U1"), safety_margin=0.05)["report"]["limit"] == 950
    assert context(user("U1"), window=10, safety_margin=0.07)["report"]["limit"] == 9
    assert context(user("U1"), window=3_000_000_000_000_000_000_000, safety_margin=0.1)["report"]["limit"] == (
        2_700_000_000_000_000_000_000
    )


def test_shares_are_exact_decimals() -> None:
    # In binary fractions 0.29 × 100 is 28.999999999999996.
    room = {"window": 100, "prompts": [], "reserved_output": 0, "expected_user": 0, "buffer": 0, "select_margin": 0}
    assert plan("budget", {**room, "ui_share": 0.29})["offered"] == 29


def test_a_limit_of_zero_or_less_is_nothing_special() -> None:
    assert error_code(context(user("U1"), window=0)) == "context_too_long"
    assert error_code(context(user("U1"), window=10, buffer=500)) == "context_too_long"
    nothing = context(user("U1", 0), window=0)
    assert nothing["ok"] and nothing["report"]["limit"] == nothing["report"]["used"] == 0


def test_given_tokens_beat_the_text() -> None:
    answer = context(user("U1", 7, text="many more words than seven tokens could ever hold, or so it seems to be"))
    assert answer["report"]["used"] == 7


def test_a_message_without_tokens_costs_its_text() -> None:
    text = "Xin chào, bạn khỏe không? 你好 🦜"
    assert context(user("U1", None, text=text))["report"]["used"] == count(text)


def test_the_tokenizer_can_be_chosen() -> None:
    text = "Xin chào, bạn khỏe không?"
    answer = context(user("U1", None, text=text), tokenizer="cl100k_base")
    assert answer["report"]["used"] == count(text, "cl100k_base") != count(text)


def test_a_call_without_tokens_costs_its_name_and_arguments_as_json() -> None:
    calls = [{"id": "c", "name": "search", "arguments": {"q": "Gänse"}}]
    answer = context(user("U1", 0), assistant("TC", None, text="Let me see.", tool_calls=calls), result("TR", "c", 0))
    expected = count("Let me see.") + count('{"name": "search", "arguments": {"q": "Gänse"}}')
    assert message_of(answer, "TC")["tokens"] == expected


def test_a_special_token_in_a_text_is_ordinary_text() -> None:
    answer = context(user("U1", None, text="<|endoftext|>"))
    assert answer["ok"] and answer["report"]["used"] > 1


def test_files_cost_their_rendered_text_when_only_some_carry_tokens() -> None:
    files = [file("a", 5_000), file("b", text="Bar")]
    answer = context(user("U1", 0), project_files=files)
    expected = (
        f'{PREFIX}\n{{"documents": [{{"document": 1, "title": "a.txt", "contents": ""}}, '
        '{"document": 2, "title": "b.txt", "contents": "Bar"}]}'
    )
    assert message_of(answer, "project_files")["content"] == expected
    assert answer["report"]["used"] == count(expected)


def test_files_cost_the_sum_of_their_tokens_when_all_carry_some() -> None:
    answer = context(user("U1", 0, files=[file("a", 3, text="aaa"), file("b", 4)]), message_overhead=4)
    assert message_of(answer, "a+b")["tokens"] == 7 + 4
    assert '"contents": "aaa"' in message_of(answer, "a+b")["content"]


def test_the_images_of_a_project_stand_below_its_files_and_get_what_the_messages_leave() -> None:
    own = [{"id": "i", "tokens": 30}]
    images = [{"id": "p1", "tokens": 40, "title": "Shelf"}, {"id": "p2", "tokens": 50, "title": "Shop"}]
    answer = context(user("U1", 5, images=own), project_files=[file("p", 10)], project_images=images, max_images=2)
    assert sent(answer) == ["project_files", "p1", "U1"]
    line = "These images belong to the project: Shelf."
    shown = message_of(answer, "p1")
    assert (shown["content"], shown["images"], shown["tokens"]) == (line, ["p1"], count(line) + 40)
    assert answer["report"]["used"] == 10 + count(line) + 40 + 35
    rows = {each["id"]: each for each in answer["report"]["sources"] if each["kind"] == "project_file"}
    assert {name: (each["state"], each.get("reason")) for name, each in rows.items()} == {
        "p": ("full", None), "p1": ("full", None), "p2": ("left_out", "too_many_images"),
    }  # fmt: skip


def test_the_images_of_a_tool_result_stand_below_it_and_only_in_their_turn_or_a_pinned_one() -> None:
    images = [{"id": "i", "tokens": 30, "title": "Chart"}]
    line = "These images belong to the tool results above: Chart."

    def turn(number: int, **fields: Any) -> list[Json]:
        called = call(f"C{number}", f"c{number}")
        return [user(f"U{number}", **fields), called, result(f"R{number}", f"c{number}", 7, images=images)]

    answer = context(*turn(1))
    below = answer["messages"][3]
    assert sent(answer) == ["U1", "C1", "R1", "current"]
    assert (below["role"], below["content"], below["images"]) == ("user", line, ["i"])
    assert below["tokens"] == count(line) + 30 and message_of(answer, "R1")["tokens"] == 7
    assert image_states(answer) == [("full", None)]

    answer = context(*turn(1), user("U2"))
    assert sent(answer) == ["U1", "C1", "R1", "U2"] and image_states(answer) == [("stubbed", None)]
    pinned = [user("U1", mark="pinned"), call("C1", "c1"), result("R1", "c1", 7, images=images, mark="pinned")]
    answer = context(*pinned, user("U2"))
    assert sent(answer) == ["U1", "C1", "R1", "history", "U2"] and image_states(answer) == [("full", None)]


def test_images_of_old_results_count_for_nothing_and_surplus_ones_of_new_results_are_named() -> None:
    images = [{"id": "i", "tokens": 30, "title": "Chart"}, {"id": "j", "tokens": 30, "title": "Map"}]
    old = [user("U1"), call("C1", "c1"), result("R1", "c1", 7, images=images)]
    answer = context(*old, user("U2", images=[{"id": "own", "tokens": 30}]), max_images=1)
    assert message_of(answer, "U2")["images"] == ["own"]
    answer = context(*old, max_images=1)
    assert sent(answer) == ["U1", "C1", "R1", "j", "current"]
    assert "Map" in answer["messages"][3]["content"] and answer["messages"][4]["images"] == ["i"]
    assert image_states(answer) == [("full", None), ("left_out", "too_many_images")]


def image_states(answer: Json) -> list[tuple[str, str | None]]:
    return [(each["state"], each.get("reason")) for each in answer["report"]["sources"] if each["kind"] == "image"]


def test_documents_have_a_fixed_key_order_and_keep_their_characters() -> None:
    files = [{"text": 'Đây là "tài liệu"\n', "metadata": "trạng thái: 关闭", "title": "Tệp.txt", "id": "p"}]
    answer = context(user("U1"), project_files=files)
    assert message_of(answer, "project_files")["content"] == (
        f'{PREFIX}\n{{"documents": [{{"document": 1, "title": "Tệp.txt", "metadata": "trạng thái: 关闭", '
        '"contents": "Đây là \\"tài liệu\\"\\n"}]}'
    )


def test_an_absent_title_or_text_is_an_empty_string_and_absent_metadata_is_left_out() -> None:
    answer = context(user("U1"), project_files=[{"id": "p"}])
    assert message_of(answer, "project_files")["content"].endswith(
        '{"documents": [{"document": 1, "title": "", "contents": ""}]}'
    )


def test_the_content_of_a_block_given_by_tokens_alone_is_null() -> None:
    answer = context(
        user("U1", files=[file("f", 5)]), system={"tokens": 9}, project_files=[file("p", 5)], reminder={"text": "Mind."}
    )
    contents = [message["content"] for message in answer["messages"]]
    assert contents == [None, None, None, None, "Mind."]


def test_a_stub_is_put_in_place_of_a_shorter_result_too() -> None:
    answer = context(user("U1"), call("TC", "c"), result("TR", "c", 1, text="7"), user("U2"))
    stub = message_of(answer, "TR")
    assert stub["content"] == "This tool result is no longer available." and stub["tokens"] == 5


def test_a_stub_costs_its_own_count_unless_the_request_says_otherwise() -> None:
    request = {**BARE, "messages": [user("U1"), call("TC", "c"), result("TR", "c"), user("U2")]}
    del request["tool_result_stub_tokens"]
    answer = plan("context", request)
    assert message_of(answer, "TR")["tokens"] == count("This tool result is no longer available.")


def test_a_stub_pays_its_overhead() -> None:
    answer = context(user("U1"), call("TC", "c"), result("TR", "c"), user("U2"), message_overhead=4)
    assert message_of(answer, "TR")["tokens"] == 9


def test_in_a_stubs_place_nothing_else_counts() -> None:
    images = [{"id": "i", "tokens": 900}]
    answer = context(user("U1"), call("TC", "c"), result("TR", "c", images=images), user("U2"))
    assert message_of(answer, "TR")["tokens"] == 5 and "images" not in message_of(answer, "TR")


def test_a_block_of_no_tokens_is_sent_and_pays_its_overhead() -> None:
    answer = context(user("U1", 5), system={"tokens": 0}, reminder={"text": ""}, message_overhead=4)
    assert sent(answer) == ["system", "U1", "reminder"] and answer["report"]["used"] == 4 + 9 + 4


def test_an_empty_list_is_no_block() -> None:
    assert sent(context(user("U1", files=[]), project_files=[])) == ["U1"]


def test_a_null_section_is_no_section() -> None:
    nulls = dict.fromkeys(["system", "tasks", "summary", "persona", "reminder", "file_listing"])
    assert sent(context(user("U1"), **nulls)) == ["U1"]


def test_the_same_file_twice_is_sent_twice_under_one_number() -> None:
    first, second = file("f", text="Foo"), file("g", text="Bar")
    answer = context(
        user("U1", files=[first]),
        assistant("A1"),
        user("U2", files=[second, first]),
        project_files=[file("p", text="P")],
    )
    assert '"document": 1, "title": "p.txt"' in message_of(answer, "project_files")["content"]
    assert '"document": 2, "title": "f.txt"' in message_of(answer, "f")["content"]
    assert (
        '[{"document": 3, "title": "g.txt", "contents": "Bar"}, {"document": 2,' in message_of(answer, "g+f")["content"]
    )


def test_numbers_do_not_depend_on_what_was_left_out() -> None:
    messages = [user("U1", 900, files=[file("f", text="F")]), assistant("A1"), user("U2", files=[file("g", text="G")])]
    answer = context(*messages, window=500)
    assert sent(answer) == ["g", "U2"] and '"document": 2' in message_of(answer, "g")["content"]


def test_dropped_is_chronological_with_a_turns_files_before_its_message() -> None:
    answer = context(
        user("U1", 90, files=[file("f", 1), file("g", 1)]),
        assistant("A1", 90),
        user("U2", 90, files=[file("h", 1)]),
        assistant("A2"),
        user("U3"),
        window=20,
    )
    assert answer["report"]["dropped"] == ["f", "g", "U1", "A1", "h", "U2", "A2"]


def test_a_removed_system_prompt_is_not_among_the_dropped() -> None:
    answer = context(user("U1", 980), system={"tokens": 900}, policy="priority", omission_note=True)
    assert sent(answer) == ["U1"] and answer["report"]["dropped"] == []


def test_a_result_without_a_call_is_left_out_and_listed() -> None:
    answer = context(user("U1"), result("TR0", "c"), call("TC", "c"), result("TR", "c"), result("TR2", "x"))
    assert sent(answer) == ["U1", "TC", "TR"] and answer["report"]["dropped"] == ["TR0", "TR2"]


def test_a_call_of_an_earlier_turn_does_not_carry_a_result() -> None:
    answer = context(user("U1"), call("TC", "c"), result("TR1", "c"), user("U2"), result("TR2", "c"))
    assert answer["report"]["dropped"] == ["TR2"]


def test_a_call_without_results_loses_its_calls() -> None:
    answer = context(user("U1"), call("TC", "c", text="Let me look."), assistant("A1"), user("U2"))
    assert sent(answer) == ["U1", "TC", "A1", "U2"] and "tool_calls" not in message_of(answer, "TC")


def test_only_the_call_without_a_result_is_taken_from_its_message() -> None:
    answer = context(user("U1"), call("TC", "a", "b"), result("TRb", "b"))
    assert [tool_call["id"] for tool_call in message_of(answer, "TC")["tool_calls"]] == ["b"]


def test_a_call_without_results_and_text_is_left_out() -> None:
    answer = context(user("U1"), call("TC", "c"), assistant("A1"), user("U2"))
    assert sent(answer) == ["U1", "A1", "U2"] and answer["report"]["dropped"] == ["TC"]


def test_call_ids_that_come_again_in_a_turn_are_matched_in_order() -> None:
    answer = context(user("U1"), call("T1", "c"), result("R1", "c"), call("T2", "c"), result("R2", "c"))
    assert sent(answer) == ["U1", "T1", "R1", "T2", "R2"] and answer["report"]["dropped"] == []


def test_a_call_that_is_not_a_dictionary_of_arguments_is_sent_as_written() -> None:
    calls = [{"id": "c", "name": "run", "arguments": '{"broken": '}]
    answer = context(user("U1"), assistant("TC", 5, tool_calls=calls), result("TR", "c"))
    assert message_of(answer, "TC")["tool_calls"][0]["arguments"] == '{"broken": '


def test_the_same_request_gives_the_same_bytes() -> None:
    line = json.dumps({**MINIMAL, "window": 60, "messages": [user("U1", 50), assistant("A1", 50), user("U2", 50)]})
    lines: list[list[dict[str, Any]]] = [answers("context", line)[0] for _ in range(2)]
    assert json.dumps(lines[0]) == json.dumps(lines[1])
