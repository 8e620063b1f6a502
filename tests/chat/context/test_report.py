"""The report, and requests with only the end of a conversation (docs/develop/context.md, “What comes back”)."""

from dataclasses import replace
from typing import Any

from chat.context.build import build
from chat.context.types import Block, ContextMessage, ContextRequest, Document, ImageRef, Room, SourceReport
from llm.tokens import tokenizer
from llm.types.model_call import ToolCall

CALL = ToolCall("c", "search", "{}")


def request(*messages: ContextMessage, window: int = 1_000, **fields: Any) -> ContextRequest:
    room = Room(window, reserved_output=0, buffer=0)
    return ContextRequest(
        room, messages, tokenizer("o200k_base"), message_overhead=0, stub_tokens=5, omission_note=False, **fields
    )


def user(name: str, tokens: int = 10, **fields: Any) -> ContextMessage:
    return ContextMessage(name, "user", None, tokens, **fields)


def assistant(name: str, tokens: int = 10, **fields: Any) -> ContextMessage:
    return ContextMessage(name, "assistant", None, tokens, **fields)


def states(context_request: ContextRequest) -> dict[str | None, tuple[str, str | None]]:
    return {source.id or source.kind: (source.state, source.reason) for source in build(context_request).report.sources}


def test_every_source_says_what_became_of_it() -> None:
    result = ContextMessage("R1", "tool", "found", 300, tool_call_id="c")
    context_request = request(
        user("U0", 900, files=(Document("f0", "f0", None, 5),)),
        user("U1", 500),
        user("U2", images=(ImageRef("i", 20),)),
        assistant("T2", tool_calls=(CALL,)),
        result,
        user("U3", files=(Document("f3", "f3", None, 5),)),
        system=Block(None, 7),
        project_files=(Document("p", "p", None, 30),),
        window=500,
    )
    assert states(context_request) == {
        "system": ("full", None),
        "p": ("full", None),
        "f0": ("left_out", "behind_gap"),
        "U0": ("left_out", "behind_gap"),
        "U1": ("left_out", "no_room"),
        "i": ("full", None),
        "U2": ("full", None),
        "T2": ("full", None),
        "R1": ("stubbed", None),
        "f3": ("full", None),
        "U3": ("full", None),
    }


def test_a_shortened_source_says_from_what_to_what() -> None:
    result = ContextMessage("R1", "tool", None, 3_000, tool_call_id="c")
    call = request(user("U1"), assistant("T1", tool_calls=(CALL,)), result, system=Block(None, 300))
    source = build(call).report.sources[-1]
    assert (source.id, source.state, source.cut_from, source.tokens) == ("R1", "shortened", 3_000, 680)
    cut = build(replace(call, messages=[user("U1")], system=Block(None, 800), policy="priority")).report.sources[0]
    assert (cut.kind, cut.state, cut.cut_from, cut.tokens) == ("system", "shortened", 800, 300)


def test_a_removed_system_prompt_is_reported_as_left_out() -> None:
    context_request = request(user("U1", 980), system=Block(None, 400), policy="priority")
    assert states(context_request)["system"] == ("left_out", "no_room")


def test_orphans_are_reported_with_their_own_reason() -> None:
    lost = ContextMessage("R9", "tool", "found", 5, tool_call_id="x")
    context_request = request(user("U1"), assistant("T1", tool_calls=(CALL,)), lost, user("U2"))
    assert states(context_request)["T1"] == ("left_out", "call_without_result")
    assert states(context_request)["R9"] == ("left_out", "result_without_call")
    current = request(user("U1"), assistant("T1", tool_calls=(CALL,)), lost)
    assert states(current)["T1"] == ("left_out", "call_without_result")


def test_images_and_counts_of_another_tokenizer_are_estimates() -> None:
    assert build(request(user("U1"))).report.exact
    report = build(request(user("U1", images=(ImageRef("i", 20),)))).report
    assert [source.exact for source in report.sources] == [False, False] and not report.exact
    assert not build(request(user("U1"), exact=False)).report.exact


def test_what_only_the_caller_knows_is_in_the_report_as_given() -> None:
    failed = SourceReport("file", "broken.pdf", "left_out", 0, "failed_file")
    searched = SourceReport("project_file", "big.pdf", "by_search", 0)
    context_request = request(user("U1"), extra_sources=(failed, searched), versions={"system": "v7"})
    report = build(context_request).report
    assert report.sources[-2:] == [failed, searched] and report.versions == {"system": "v7"}
    assert report.as_dict()["sources"][-1]["state"] == "by_search" and report.as_dict()["versions"] == {"system": "v7"}


def test_the_costs_of_sections_and_messages_add_up_to_what_is_used() -> None:
    prompt = build(request(user("U1"), assistant("A1"), user("U2"), system=Block("You are kind."), window=60))
    report = prompt.report
    assert report.used == sum(message.tokens for message in prompt.messages) == sum(report.sections.values())
    assert report.left == report.limit - report.used and list(report.sections) == ["system", "history", "current"]


CONVERSATION = [message for n in range(50) for message in (user(f"U{n}"), assistant(f"A{n}"))] + [user("U50")]


def test_a_caller_that_loads_newest_first_stops_as_soon_as_the_prompt_is_full() -> None:
    whole = build(request(*CONVERSATION, window=215))
    loaded = 1
    while (prompt := build(end_of_conversation(loaded, window=215))).wants_older:
        loaded += 4
    assert loaded <= 1 + 20 + 4
    assert prompt.messages == whole.messages and prompt.report.used == whole.report.used


def test_a_caller_is_asked_for_more_while_there_is_room() -> None:
    assert build(end_of_conversation(5, window=215)).wants_older
    assert build(end_of_conversation(len(CONVERSATION) - 2, window=5_000)).wants_older
    assert not build(request(*CONVERSATION, window=5_000)).wants_older


def test_a_caller_is_not_asked_for_more_when_no_message_could_fit() -> None:
    context_request = replace(end_of_conversation(5, window=73), message_overhead=4)
    assert build(context_request).report.left == 3 and not build(context_request).wants_older
    assert build(replace(context_request, room=Room(74, reserved_output=0, buffer=0))).wants_older


def test_a_turn_that_was_not_loaded_whole_is_not_sent() -> None:
    prompt = build(end_of_conversation(4, window=5_000))
    assert [message.source for message in prompt.messages] == ["U49", "A49", "U50"] and prompt.wants_older
    assert prompt.report.dropped == ["A48"] and prompt.report.unloaded == len(CONVERSATION) - 4


def test_messages_that_were_not_loaded_call_for_the_omission_note() -> None:
    prompt = build(replace(end_of_conversation(3, window=5_000), omission_note=True))
    assert [message.section for message in prompt.messages] == ["omitted", "history", "history", "current"]


def test_the_cost_of_a_prompt_does_not_grow_with_the_age_of_the_conversation() -> None:
    # Of a message older than the gap only its mark is looked at.
    class Unread:
        mark = None

        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"{name} of a message behind the gap was read")

    messages: list[Any] = [Unread() for _ in range(1_000)] + CONVERSATION
    prompt = build(request(*messages, window=215))
    assert len(prompt.messages) == 21


def end_of_conversation(length: int, *, window: int) -> ContextRequest:
    return request(*CONVERSATION[-length:], window=window, unloaded=len(CONVERSATION) - length)
