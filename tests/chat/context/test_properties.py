"""Properties of every prompt, over conversations in several scripts. tiktoken counts the sent messages.

`make fuzz` tries more conversations (`CONTEXT_EXAMPLES`).
"""

import json
import os
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from chat.context.build import Prompt, build, required_tokens
from chat.context.policies import current_turn_start, read_turn, turn_bounds
from chat.context.rendering import LAYOUTS, PromptRenderer, cost
from chat.context.types import (
    Block,
    ContextError,
    ContextMessage,
    ContextRequest,
    Document,
    Mark,
    PromptMessage,
    Room,
)
from llm.tokens import tokenizer
from llm.types.model_call import ToolCall

EXAMPLES = int(os.environ.get("CONTEXT_EXAMPLES", "50"))  # of each property
COUNTER = tokenizer("o200k_base")
OVERHEAD = 4
PHRASES = [
    "The river rises in spring, doesn't it? ",
    "Tôi muốn tóm tắt tài liệu này cho cả nhóm. ",
    "人工智能正在改变世界，我们应该如何应对？",
    "🦜🇻🇳👩‍👩‍👧‍👦🪿 ",
    "def f(x):\n\treturn {k: v for k, v in x.items()}\n\n",
    '{"results": [1.5, null, "\\u00e9"]}\n',
    "<|endoftext|> ᚠᛇᚻ e\u0301 ",
]

texts = st.builds(lambda phrases, times: "".join(phrases) * times, st.lists(st.sampled_from(PHRASES), max_size=3),
                  st.sampled_from([1, 1, 1, 4, 30]))  # fmt: skip
blocks = st.none() | st.builds(Block, texts)
documents = st.builds(Document, st.sampled_from(["d1", "d2", "d3"]), st.just("Tệp.txt"), texts)
uploads = st.lists(documents, max_size=2).map(tuple)


@st.composite
def turns(draw: st.DrawFn) -> list[ContextMessage]:
    """Generate a question, up to three cycles of calls with missing or surplus results, and perhaps an answer."""
    messages = [ContextMessage("", "user", draw(texts), files=draw(uploads))]
    for cycle in range(draw(st.integers(0, 3))):
        ids = draw(st.lists(st.sampled_from(["a", "b", f"c{cycle}"]), min_size=1, max_size=2, unique=True))
        calls = tuple(ToolCall(name, "search", json.dumps({"q": draw(texts)[:60]})) for name in ids)
        messages.append(ContextMessage("", "assistant", draw(texts) or None, tool_calls=calls))
        answered = ids if draw(st.integers(0, 5)) else draw(st.lists(st.sampled_from(["a", "x"]), max_size=2))
        messages += [ContextMessage("", "tool", draw(texts), tool_call_id=name) for name in answered]
    if draw(st.booleans()):
        messages.append(ContextMessage("", "assistant", draw(texts)))
    return messages


@st.composite
def conversations(draw: st.DrawFn) -> list[ContextMessage]:
    greeting = [ContextMessage("", "assistant", "Hi!")] if draw(st.booleans()) else []
    messages = greeting + [message for turn in draw(st.lists(turns(), min_size=1, max_size=5)) for message in turn]
    return [replace(message, id=f"m{position}") for position, message in enumerate(messages)]


@st.composite
def requests(draw: st.DrawFn, /, **fixed: Any) -> ContextRequest:
    fields = {
        "room": Room(draw(st.integers(50, 4_000)), reserved_output=0, buffer=0),
        "policy": draw(st.sampled_from(["recent", "priority"])),
        "layout": draw(st.sampled_from(sorted(LAYOUTS))),
        **fixed,
    }
    return ContextRequest(
        messages=draw(conversations()),
        tokenizer=COUNTER,
        message_overhead=OVERHEAD,
        omission_note=draw(st.booleans()),
        system=draw(blocks),
        tasks=draw(blocks),
        persona=draw(blocks),
        project_files=draw(uploads),
        reminder=draw(blocks),
        **fields,
    )


@st.composite
def marked(draw: st.DrawFn) -> ContextRequest:
    """Generate a request in which any turn and any file may be pinned or left out."""
    request = draw(requests())
    marks: st.SearchStrategy[Mark | None] = st.sampled_from([None, None, "pinned", "excluded"])
    return replace(
        request,
        messages=[
            replace(
                message,
                mark=draw(marks),
                files=tuple(replace(file, excluded=draw(st.booleans())) for file in message.files),
            )
            if message.role == "user"
            else message
            for message in request.messages
        ],
    )


def built(request: ContextRequest) -> Prompt | None:
    """The prompt, or None when a typed error says why there is none."""
    try:
        return build(request)
    except ContextError as error:
        assert error.code in ("file_too_long", "context_too_long")
        return None


def really_costs(message: PromptMessage) -> int:
    text = message.text or ""
    calls = sum(COUNTER.count(call.name) + COUNTER.count(call.arguments) for call in message.tool_calls)
    return COUNTER.count(text) + calls + OVERHEAD


def messages_of(prompt: Prompt) -> list[PromptMessage]:
    return [message for message in prompt.messages if message.section in ("history", "current")]


@settings(max_examples=EXAMPLES, deadline=None)
@given(requests())
def test_a_prompt_never_exceeds_the_limit_as_it_is_really_sent(request: ContextRequest) -> None:
    if prompt := built(request):
        for message in prompt.messages:
            assert message.text is not None
            message.text.encode()
            assert really_costs(message) <= message.tokens
        assert sum(map(really_costs, prompt.messages)) <= prompt.report.used <= request.room.input_limit


@settings(max_examples=EXAMPLES, deadline=None)
@given(requests() | marked())
def test_no_result_stands_without_its_call_and_no_call_without_its_results(request: ContextRequest) -> None:
    if prompt := built(request):
        open_calls: set[str] = set()
        called: set[str | None] = set()
        for message in messages_of(prompt):
            if message.role == "user":
                assert not open_calls
                called = set()
            if message.role == "tool":
                assert message.tool_call_id in called
                open_calls.discard(message.tool_call_id or "")
            calls = {call.id for call in message.tool_calls}
            called |= calls
            open_calls |= calls
        assert not open_calls


@settings(max_examples=EXAMPLES, deadline=None)
@given(requests())
def test_order_is_kept_and_every_message_is_either_sent_or_reported(request: ContextRequest) -> None:
    if prompt := built(request):
        sent = [message.source for message in messages_of(prompt)]
        assert sent == [message.id for message in request.messages if message.id in set(sent)]
        names = {message.id for message in request.messages}
        assert set(sent) | (set(prompt.report.dropped) & names) == names
        assert not set(sent) & set(prompt.report.dropped)


@settings(max_examples=EXAMPLES, deadline=None)
@given(requests())
def test_the_newest_question_is_never_changed(request: ContextRequest) -> None:
    if prompt := built(request):
        question = [message for message in request.messages if message.role == "user"][-1]
        sent = [message for message in prompt.messages if message.source == question.id]
        assert [(message.text, message.state) for message in sent] == [(question.text, "full")]


@settings(max_examples=EXAMPLES, deadline=None)
@given(requests(policy="recent"))
def test_recent_sends_an_unbroken_end_of_the_conversation_and_whole_turns(request: ContextRequest) -> None:
    if prompt := built(request):
        orphans = {s.id for s in prompt.report.sources if s.reason in ("result_without_call", "call_without_result")}
        whole = [message.id for message in request.messages if message.id not in orphans]
        sent = [message.source for message in messages_of(prompt)]
        assert sent == whole[len(whole) - len(sent) :]
        first = next(message for message in request.messages if message.id == sent[0])
        assert first.role == "user" or sent == whole


@settings(max_examples=EXAMPLES, deadline=None)
@given(requests(policy="recent"), st.integers(1, 2_000))
def test_a_larger_window_never_sends_less_with_recent(request: ContextRequest, more: int) -> None:
    # Not true for `priority`: room for one more large group can be taken from the small turns it used to leave.
    # Nor to the last message when a result was shortened: the few tokens its cut left over may admit an empty message.
    smaller, larger = built(request), built(with_window(request, request.room.window + more))
    # Nor with files: a turn that now fits with its files takes the place of older ones.
    files = any(message.files for message in request.messages)
    if smaller and not files and all(message.state != "shortened" for message in smaller.messages):
        assert larger
        assert {message.source for message in messages_of(smaller)} <= {
            message.source for message in messages_of(larger)
        }


@settings(max_examples=EXAMPLES, deadline=None)
@given(requests())
def test_the_same_request_gives_the_same_prompt(request: ContextRequest) -> None:
    first, second = built(request), built(request)
    assert (first is None) == (second is None)
    if first and second:
        assert first.messages == second.messages
        assert json.dumps(first.report.as_dict()) == json.dumps(second.report.as_dict())


@settings(max_examples=EXAMPLES, deadline=None)
@given(requests())
def test_layouts_differ_only_in_the_order_of_sections(request: ContextRequest) -> None:
    prompts = [built(replace(request, layout=layout)) for layout in LAYOUTS]
    assert len({prompt is None for prompt in prompts}) == 1
    assert len({tuple(sorted(prompt.messages, key=repr)) for prompt in prompts if prompt}) <= 1
    for prompt in prompts:
        assert prompt is None or request.reminder is None or prompt.messages[-1].section == "reminder"


@settings(max_examples=EXAMPLES, deadline=None)
@given(marked())
def test_what_is_left_out_is_never_sent_and_a_pinned_turn_that_fits_always(request: ContextRequest) -> None:
    prompt = built(request)
    if prompt is None:
        return
    renderer, left = PromptRenderer(request), request.room.input_limit - required_tokens(request)
    sent = {message.source for message in messages_of(prompt)}
    current = current_turn_start(request.messages)
    for begin, end in turn_bounds(request.messages, 0, current):
        turn = request.messages[begin:end]
        if turn[0].mark == "excluded":
            assert not sent & {message.id for message in turn}
            states = {each.id: (each.state, each.reason) for each in prompt.report.sources if each.kind == "message"}
            assert {states[message.id] for message in turn} == {("left_out", "by_user")}
        elif turn[0].mark == "pinned":
            whole = [each for message in read_turn(turn).messages for each in renderer.older_message(message)]
            if cost(whole) > left and turn[0].sent_files:
                whole[0] = renderer.file_stub(whole[0], turn[0])
            fits = cost(whole) <= left
            assert (turn[0].id in sent) == fits
            left -= cost(whole) if fits else 0
    uploads = [message for message in prompt.messages if message.section == "file"]
    sent_files = {file.id for message in request.messages for file in message.sent_files}
    assert {pk for message in uploads for pk in (message.source or "").split("+")} <= sent_files
    assert prompt.report.used <= request.room.input_limit


def test_a_larger_window_may_send_fewer_small_turns_with_priority() -> None:
    group = [
        ContextMessage("U1", "user", None, 500),
        ContextMessage("T1", "assistant", None, 100, tool_calls=(ToolCall("c", "search", "{}"),)),
        ContextMessage("R1", "tool", None, 100, tool_call_id="c"),
    ]
    messages = [*group, ContextMessage("U2", "user", None, 40), ContextMessage("U3", "user", None, 10)]
    request = ContextRequest(
        Room(100, reserved_output=0, buffer=0),
        messages,
        COUNTER,
        policy="priority",
        message_overhead=0,
        stub_tokens=100,
    )
    small, large = built(request), built(with_window(request, 220))
    assert small and [message.source for message in messages_of(small)] == ["U2", "U3"]
    assert large and [message.source for message in messages_of(large)] == ["T1", "R1", "U3"]


def with_window(request: ContextRequest, window: int) -> ContextRequest:
    return replace(request, room=Room(window, reserved_output=0, buffer=0))
