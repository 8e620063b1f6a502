"""AG-UI without a server: a turn's events become the protocol's, and a run's input is understood or refused."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urljoin
from uuid import uuid4

import pytest
from ag_ui.encoder import EventEncoder
from django.test import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from rest_framework.exceptions import ValidationError

from accounts.models import User
from accounts.services import create_token
from chat.models import Conversation, Message, Turn
from chat.models.parts import MessagePart
from chat.realtime.events import Approval, Event, EventType, WireEvent, fold
from chat.turns.emitter import Answer
from chat.turns.store import UNEXPECTED, Ending, last_event
from contrib.ag_ui.run_input import InterruptPoint, read_run_input
from contrib.ag_ui.start_run import NOT_RUN_TEXT, start_run
from contrib.ag_ui.translation import RunContext, Translation
from core.errors import NotFound, ProductError
from core.sentences import Sentence
from llm.models import Model, Provider
from llm.services import upsert_provider
from llm.types.model_call import (
    LoopEvent,
    ReasoningDelta,
    StepFinished,
    StepStarted,
    TextBecameReasoning,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    ToolRunFinished,
    ToolRunStarted,
    Usage,
)
from tests.contrib.ag_ui.client import custom, messages, problems, read_events, result, run_input, user

TURN = "0197d1f0-5c1e-7a30-9b1f-3f6c2b8d4e21"
DONE = Ending(Turn.Status.DONE)
LOOK = ToolCall("c", "look", '{"at": "sea"}')
CALLING: list[LoopEvent] = [ToolCallStarted(0, "c", "look"), ToolCallDelta(0, '{"at": "sea"}')]
RUNNING: list[LoopEvent] = [ToolRunStarted(LOOK, Sentence("Looking at the sea"))]
ANSWER: list[LoopEvent] = [
    StepStarted(1),
    ReasoningDelta("Hm."),
    TextDelta("Let me look."),
    *CALLING,
    StepFinished("tool_calls"),
    *RUNNING,
    ToolRunFinished(
        LOOK, "Waves.", False, {"documents": [{"number": 1, "title": "Sea", "url": "https://sea.example/"}]}
    ),
    StepStarted(2),
    TextDelta("Waves"),
    TextDelta(" [1]."),
    StepFinished("stop", Usage(9, 4, cached_input=3, reasoning=1)),
]


def wires_of(answer: Answer, ending: Ending | None) -> list[WireEvent]:
    """Return the events in the stream of a turn with this answer. Without an ending the turn is still running."""
    if ending is not None:
        answer.close()
        type_, payload = last_event(ending, answer.usage_row(), answer.finish_reason)
        answer.emit_payload(type_, payload)
    return [event.to_wire() for event in answer.drain()]


def answer_of(*events: LoopEvent, external: str = "") -> Answer:
    answer = Answer(TURN)
    answer.external = frozenset([external])
    answer.emit(EventType.RUN_STARTED, conversation=TURN, message=TURN, model="m")
    for event in events:
        answer.add(event)
        if isinstance(event, StepStarted):
            answer.emit(EventType.CONTEXT_REPORT, limit=100, used=10, left_out=2, refused="")
    return answer


def translation(external: str = "", parts: int = 0) -> Translation:
    return Translation(
        RunContext("thread", "run", TURN, "answer", "m", {external}, partial(urljoin, "https://a")), parts
    )


def run_of(translating: Translation, wires: list[WireEvent]) -> list[Any]:
    """The events of a run as a client reads them."""
    events = [translating.begin(), *(event for wire in wires for event in translating.feed(wire))]
    lines = [line for event in events for line in EventEncoder().encode(event).splitlines()]
    return list(read_events(lines))


def test_an_answer_with_a_thought_a_tool_and_a_source_is_said_in_the_protocol() -> None:
    events = run_of(translation(), wires_of(answer_of(*ANSWER), DONE))
    assert not problems(events)
    call = {"id": "answer:c", "name": "look", "arguments": '{"at": "sea"}'}
    assert messages(events) == [
        {"role": "reasoning", "text": "Hm."},
        {"role": "assistant", "text": "Let me look.", "calls": [call]},
        {"role": "tool", "text": "Waves.", "call": "answer:c"},
        {"role": "assistant", "text": "Waves [1].", "calls": []},
    ]
    assert events[0].protocol_version == "1.0"
    [turn], reports = custom(events, "turn"), custom(events, "context_report")
    assert turn == {"turn": TURN, "message": "answer", "model": "m", "url": f"https://a/api/v1/turns/{TURN}/"}
    report = {"limit": 100, "used": 10, "left_out": 2, "refused": ""}
    assert reports == [{**report, "url": f"https://a/api/v1/turns/{TURN}/report/"}] * 2
    [source] = custom(events, "citation")
    assert source == {"messageId": "answer:4", "number": 1, "title": "Sea", "url": "https://sea.example/"}
    [label] = [event.metadata for event in events if event.type.value == "TOOL_CALL_END"]
    assert label == {"label": "Looking at the sea"}
    last = events[-1]
    assert (last.type.value, last.outcome.type, last.outcome.pending_tool_call_ids) == ("RUN_FINISHED", "success", None)
    assert last.metadata == {"finish": "stop"}
    [usage] = last.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.cached_input_tokens) == (9, 4, 13, 3)


def test_text_that_was_reasoning_is_taken_back_by_a_snapshot() -> None:
    steps: list[LoopEvent] = [
        StepStarted(1),
        *CALLING,
        StepFinished("tool_calls"),
        *RUNNING,
        ToolRunFinished(LOOK, "Waves.", False, {}),
        StepStarted(2),
        TextDelta("Let me "),
        TextDelta("think."),
        TextBecameReasoning(),
        TextDelta("Waves."),
        StepFinished("stop"),
    ]
    events = run_of(translation(), wires_of(answer_of(*steps), DONE))
    assert not problems(events)
    [snapshot] = [event for event in events if event.type.value == "MESSAGES_SNAPSHOT"]
    assert [message.role for message in snapshot.messages] == ["assistant", "tool", "reasoning"]
    call = {"id": "answer:c", "name": "look", "arguments": '{"at": "sea"}'}
    assert messages(events) == [
        {"role": "assistant", "text": "", "calls": [call]},
        {"role": "tool", "text": "Waves.", "call": "answer:c"},
        {"role": "reasoning", "text": "Let me think."},
        {"role": "assistant", "text": "Waves.", "calls": []},
    ]


def test_a_snapshot_of_a_turn_takes_back_text_that_was_reasoning_meanwhile() -> None:
    answer = answer_of(StepStarted(1), TextDelta("Let me think."))
    translating, wires = translation(), wires_of(answer, None)
    answer.add(TextBecameReasoning())
    answer.add(TextDelta("Waves."))
    answer.add(StepFinished("stop"))
    rest = wires_of(answer, DONE)
    missed: WireEvent = {
        "type": "SNAPSHOT",
        "seq": 9,
        "message": TURN,
        "status": "running",
        "model": "m",
        "fallback": "",
        "parts": answer.parts,
    }
    events = run_of(translating, [*wires, missed, rest[-1]])
    assert not problems(events)
    assert [(each["role"], each["text"]) for each in messages(events)] == [
        ("reasoning", "Let me think."),
        ("assistant", "Waves."),
    ]


def test_what_a_thought_divides_are_paragraphs_of_one_message() -> None:
    parts: list[LoopEvent] = [
        StepStarted(1),
        TextDelta("One."),
        ReasoningDelta("Hm."),
        TextDelta("Two."),
        StepFinished("stop"),
    ]
    events = run_of(translation(), wires_of(answer_of(*parts), DONE))
    assert not problems(events) and events[-1].usage is None
    assert [each["text"] for each in messages(events)] == ["One.\n\nTwo.", "Hm."]


def test_a_call_of_the_programs_tool_ends_the_run_and_those_beside_it_are_answered() -> None:
    own = ToolCall("d", "mine", "{}")
    other: list[LoopEvent] = [
        ToolCallStarted(1, "d", "mine"),
        StepFinished("tool_calls"),
        ToolRunStarted(own, Sentence.verbatim("mine")),
    ]
    events = run_of(translation("mine"), wires_of(answer_of(StepStarted(1), *CALLING, *other, external="mine"), DONE))
    assert not problems(events)
    [message, not_run] = messages(events)
    assert [call["name"] for call in message["calls"]] == ["look", "mine"]
    assert not_run == {"role": "tool", "text": NOT_RUN_TEXT, "call": "answer:c"}
    assert events[-1].outcome.pending_tool_call_ids == ["answer:d"]


def test_a_call_that_a_person_must_allow_interrupts_the_run_and_the_next_goes_on() -> None:
    answer = answer_of(StepStarted(1), TextDelta("May I?"), *CALLING, StepFinished("tool_calls"), *RUNNING)
    answer.emit(EventType.TOOL_CALL_APPROVAL, part=1, call="c", state=Approval.WAITING)
    before = wires_of(answer, None)
    first = run_of(translation(), before)
    assert not problems(first)
    [interrupt] = first[-1].outcome.interrupts
    assert (interrupt.tool_call_id, interrupt.message) == ("answer:c", "Looking at the sea")
    resume = [{"interruptId": interrupt.id, "status": "resolved", "payload": {"allow": True}}]
    decision = read_run_input(run_input(thread=str(uuid4()), resume=resume)).decision
    assert decision == (InterruptPoint(TURN, before[-1]["seq"], 2, "c"), True, False, {})
    answer.emit(EventType.TOOL_CALL_APPROVAL, part=1, call="c", state=Approval.ALLOWED)
    for event in (ToolRunFinished(LOOK, "Waves.", False), StepStarted(2), TextDelta("Waves."), StepFinished("stop")):
        answer.add(event)
    second = run_of(translation(parts=2), wires_of(answer, DONE))
    assert not problems(second)
    assert custom(second, "tool_call_approval") == [{"toolCallId": "answer:c", "state": "allowed"}]
    assert [each["text"] for each in messages(second)] == ["Waves.", "Waves."]


@pytest.mark.parametrize("ending", [Ending(Turn.Status.STOPPED), UNEXPECTED], ids=["stopped", "failed"])
def test_an_answer_that_did_not_end_well_leaves_nothing_open(ending: Ending) -> None:
    for unfinished in ([TextDelta("Half")], [ReasoningDelta("Half")], CALLING):
        answer = answer_of(StepStarted(1), *unfinished)
        type_, payload = last_event(ending, {})
        wires = [
            *wires_of(answer, None),
            Event(type_, TURN, answer.seq + 1, payload).to_wire(),
        ]  # as of a worker that died
        events = run_of(translation(), wires)
        assert not problems(events)
        if ending is UNEXPECTED:
            assert (events[-1].message, events[-1].code) == (str(UNEXPECTED.detail), "internal_error")
        else:
            assert (events[-1].type.value, events[-1].outcome.type) == ("RUN_FINISHED", "cancelled")


def snapshot_of(wires: list[WireEvent], status: str) -> WireEvent:
    """Return the SNAPSHOT event of a row that has this much of the answer."""
    parts: list[MessagePart] = []
    for wire in wires:
        fold(parts, EventType(wire["type"]), wire)
    return {
        "type": "SNAPSHOT",
        "seq": len(wires),
        "ts": 1.0,
        "parts": parts,
        "turn": TURN,
        "message": TURN,
        "status": status,
        "model": "m",
        "fallback": "",
    }


def test_a_run_whose_stream_is_gone_is_completed_from_the_row() -> None:
    answer = answer_of(*ANSWER)
    wires = wires_of(answer, DONE)
    row = Message(parts=answer.parts, status=Message.Status.DONE)
    turn = Turn(status=Turn.Status.DONE, answer=row, usage=answer.usage_row())
    whole = run_of(translation(), wires)
    for received in range(len(wires)):
        half = translation()
        events = [half.begin(), *(event for wire in wires[:received] for event in half.feed(wire))]
        events += [*half.feed(snapshot_of(wires, "done")), *half.end(turn)]
        assert half.ended and not problems(events)
        assert messages(events) == messages(whole), received
        assert custom(events, "citation") == custom(whole, "citation")
        assert events[-1].model_dump() == whole[-1].model_dump()


def test_a_run_that_has_lost_events_goes_on_from_what_the_row_holds() -> None:
    wires = wires_of(answer_of(*ANSWER), DONE)
    whole = run_of(translation(), wires)
    for received in range(len(wires)):
        for at in range(received + 1, len(wires)):
            events = run_of(translation(), [*wires[:received], snapshot_of(wires[:at], "running"), *wires[at:]])
            assert not problems(events), (received, at)
            assert messages(events) == messages(whole), (received, at)
            assert custom(events, "citation") == custom(whole, "citation"), (received, at)
            assert events[-1].model_dump() == whole[-1].model_dump()


def test_a_run_that_has_lost_the_question_of_a_call_is_interrupted_all_the_same() -> None:
    answer = answer_of(StepStarted(1), TextDelta("May I?"), *CALLING, StepFinished("tool_calls"), *RUNNING)
    answer.emit(EventType.TOOL_CALL_APPROVAL, part=1, call="c", state=Approval.WAITING)
    wires = wires_of(answer, None)
    events = run_of(translation(), [*wires[:4], snapshot_of(wires, "running")])
    assert not problems(events)
    [interrupt] = events[-1].outcome.interrupts
    assert (interrupt.tool_call_id, interrupt.message) == ("answer:c", "Looking at the sea")
    resume = [{"interruptId": interrupt.id, "status": "resolved", "payload": {"allow": True}}]
    decision = read_run_input(run_input(thread=str(uuid4()), resume=resume)).decision
    assert decision == (InterruptPoint(TURN, wires[-1]["seq"], 2, "c"), True, False, {})


def test_a_wrong_order_would_be_noticed() -> None:
    events = run_of(translation(), wires_of(answer_of(*ANSWER), DONE))
    for index in range(len(events)):
        if events[index].type.value not in ("CUSTOM", "TOOL_CALL_RESULT", "TEXT_MESSAGE_CONTENT", "TOOL_CALL_ARGS"):
            without = [*events[:index], *events[index + 1 :]]
            assert problems(without) or events[index].type.value == "REASONING_MESSAGE_CONTENT"
    assert problems([*events, events[-1]]) and problems(events[::-1])


TOOL = {"name": "mine", "description": "Mine.", "parameters": {"type": "object"}}
THREAD = str(uuid4())


def test_what_the_application_says_beside_the_messages_are_instructions() -> None:
    request = read_run_input(
        run_input(
            {"id": "s", "role": "system", "content": "Be brief."},
            user("Hi"),
            {"id": "a", "role": "assistant", "content": "Hello."},
            {"id": "u", "role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}]},
            thread=THREAD,
            context=[{"description": "Page", "value": "Prices"}],
            state={"open": 3},
            tools=[TOOL],
            forwardedProps={"model": TURN, "theme": "dark"},
        )
    )
    assert request.options.instructions == 'Be brief.\n\nPage: Prices\n\nThe application\'s state: {"open": 3}'
    assert [tool.name for tool in request.options.tools] == ["mine"]
    assert (str(request.thread), request.text, str(request.model)) == (THREAD, "One\n\ntwo", TURN)
    assert list(request.earlier) == [("user", "Hi"), ("assistant", "Hello.")]


IMAGE = {"type": "image", "source": {"type": "url", "value": "https://a/b.png"}}
RESUME = {"interruptId": f"{TURN}:3:2:c", "status": "resolved", "payload": {"allow": True}}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({"messages": []}, "nothing_to_answer"),
    "the assistant has the last word": ({"messages": [{"id": "a", "role": "assistant"}]}, "nothing_to_answer"),
    "messages are no list": ({"messages": "Hi"}, "invalid"),
    "an unknown role": ({"messages": [{"id": "a", "role": "boss", "content": "Hi"}]}, "invalid"),
    "no run": ({"runId": None}, "invalid"),
    "a thread that is no UUID": ({"threadId": "thread-1"}, "bad_thread"),
    "an image": ({"messages": [{"id": "a", "role": "user", "content": [IMAGE]}]}, "unsupported_content"),
    "a NUL": ({"messages": [user("Hi \x00")]}, "invalid"),
    "half a character": ({"state": {"half": "\ud83d"}}, "invalid"),
    "a tool's name": ({"tools": [{**TOOL, "name": "my tool"}]}, "bad_tools"),
    "two tools of one name": ({"tools": [TOOL, TOOL]}, "bad_tools"),
    "parameters": ({"tools": [{**TOOL, "parameters": ["town"]}]}, "bad_tools"),
    "a model that is no id": ({"forwardedProps": {"model": "gpt"}}, "invalid"),
    "files without a message": (
        {"messages": [result("c", "")], "forwardedProps": {"files": [TURN]}},
        "files_without_message",
    ),
    "two answers to interrupts": ({"resume": [RESUME, RESUME]}, "bad_resume"),
    "an interrupt of another server": ({"resume": [{**RESUME, "interruptId": "int-1"}]}, "bad_resume"),
    "an answer that says neither": ({"resume": [{**RESUME, "payload": "yes"}]}, "bad_resume"),
}  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("wrong", WRONG)
def test_an_input_that_cannot_be_honoured_is_refused_and_says_why(client: Client, wrong: str) -> None:
    client.force_login(User.objects.create_user("somebody"))
    change, code = WRONG[wrong]
    body = {**run_input(user("Hi")), **change}
    refused = client.post("/api/v1/ag-ui/", body, "application/json", headers={"accept": "text/event-stream"})
    assert (refused.status_code, refused.headers["Content-Type"]) == (400, "application/problem+json")
    problem = refused.json()
    assert problem["code"] == code and len(problem["detail"]) > 15
    assert not Conversation.objects.exists()


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
MEMBERS = ("threadId", "runId", "messages", "tools", "context", "state", "forwardedProps", "resume")
CHANGES = st.dictionaries(st.sampled_from(MEMBERS), ANY_JSON | ANY_JSON.map(lambda one: [one]), max_size=3)


@settings(max_examples=200, database=None, derandomize=True, deadline=None)
@given(change=CHANGES)
def test_no_input_is_more_than_refused(change: dict[str, Any]) -> None:
    with suppress(ProductError, ValidationError):
        assert read_run_input({**run_input(user("Hi")), **change}).thread


def test_a_backslash_before_u0000_is_no_nul() -> None:
    assert read_run_input(run_input(user("\\u0000"))).text == "\\u0000"


@pytest.fixture
def somebody(db: None) -> User:
    upsert_provider(
        name="P", kind=Provider.Kind.OPENAI, base_url="http://127.0.0.1:9/v1", api_key="", models=[("m", 9_000)],
        default=True,
    )  # fmt: skip
    Model.objects.update(tools=True)
    return User.objects.create_user("somebody")


@pytest.fixture
def begin_run(somebody: User) -> Callable[..., Turn]:
    """Starts a run and returns its turn."""

    def begin(*messages_: dict[str, Any], key: str | None = None, **more: Any) -> Turn:
        return start_run(user=somebody, run=read_run_input(run_input(*messages_, **more)), key=key).turn

    return begin


def ended(turn: Turn, *parts: dict[str, Any]) -> Turn:
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.DONE)
    Message.objects.filter(pk=turn.answer_id).update(
        parts=parts, status=Message.Status.DONE, tokens={"t": {"each": [1]}}
    )
    return Turn.objects.get(pk=turn.pk)


def branch(turn: Turn) -> list[tuple[str, str]]:
    rows: list[Message] = []
    row: Message | None = turn.answer
    while row is not None:
        rows.insert(0, row)
        row = row.parent
    return [(each.role, each.text) for each in rows]


def test_a_thread_begins_with_its_history_and_is_found_again(begin_run: Callable[..., Turn], somebody: User) -> None:
    hello = {"id": "a", "role": "assistant", "content": "How can I help?"}
    first = begin_run(hello, user("Hi"), thread=THREAD)
    assert str(first.conversation_id) == THREAD and first.conversation.owner == somebody
    assert first.conversation.origin == Conversation.Origin.WORKSPACE
    ended(first, {"type": "text", "text": "Hello."})
    second = begin_run(hello, user("Hi"), {**hello, "content": "Never said."}, user("And now?"), thread=THREAD)
    history = [("assistant", "How can I help?"), ("user", "Hi"), ("assistant", "Hello."), ("user", "And now?")]
    assert branch(second)[:-1] == history


def test_the_thread_of_another_and_a_deleted_one_are_not_found(begin_run: Callable[..., Turn], somebody: User) -> None:
    owned = Conversation.objects.create(owner=User.objects.create_user("other"))
    turn = begin_run(user("Hi"))
    ended(turn)
    Conversation.objects.filter(pk=turn.conversation_id).update(deleted=turn.created)
    for thread in (owned.pk, turn.conversation_id):
        with pytest.raises(NotFound):
            begin_run(user("Hi"), thread=str(thread))
    waiting = {"interruptId": f"{turn.pk}:3:2:c", "status": "cancelled"}
    with pytest.raises(NotFound):
        begin_run(thread=str(uuid4()), resume=[waiting])
    assert not Message.objects.filter(conversation=owned).exists()


def test_the_other_side_hears_404_and_a_token_needs_the_scope(client: Client, somebody: User) -> None:
    owned = Conversation.objects.create(owner=User.objects.create_user("other"))
    body = run_input(user("Hi"), thread=str(owned.pk))
    for scope, status, code in (("chat", 404, "not_found"), ("files", 403, "missing_scope")):
        token = create_token(user=somebody, name=scope, scopes=[scope])[1]
        headers = {"authorization": f"Bearer {token}", "accept": "text/event-stream"}
        refused = client.post("/api/v1/ag-ui/", body, "application/json", headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (status, code)


def test_a_repeat_with_the_same_key_finds_the_turn(begin_run: Callable[..., Turn]) -> None:
    first = begin_run(user("Hi"), thread=THREAD, key="k")
    assert begin_run(user("Hi"), thread=THREAD, key="k") == first
    with pytest.raises(ProductError, match="already_answering"):
        begin_run(user("Hi"), thread=THREAD, key="other")


def test_the_results_of_the_programs_tools_go_into_the_answer_that_called_them(begin_run: Callable[..., Turn]) -> None:
    first = begin_run(user("Hi"), thread=THREAD, tools=[TOOL])
    calls = [
        {"type": "tool_call", "id": str(number), "name": name, "arguments": "{}"}
        for number, name in enumerate(("mine", "mine", "search"))
    ]
    ended(first, *calls)
    one, two = (result(f"{first.answer_id}:{number}", f"R{number}") for number in (0, 1))
    with pytest.raises(ProductError, match="results_missing"):
        begin_run(user("Hi"), one, thread=THREAD, tools=[TOOL])
    second = begin_run(user("Hi"), one, {**two, "error": "It broke."}, thread=THREAD, tools=[TOOL], key="k")
    assert begin_run(user("Hi"), one, two, thread=THREAD, tools=[TOOL], key="k") == second
    assert (second.user_message_id, second.answer.parent_id) == (first.user_message_id, first.answer_id)
    answer = Message.objects.get(pk=first.answer_id)
    results = [(part["id"], part["text"], part["error"]) for part in answer.parts if part["type"] == "tool_result"]
    assert results == [("0", "R0", False), ("1", "R1\n\nIt broke.", True), ("2", NOT_RUN_TEXT, True)]
    assert answer.tokens == {}
    ended(second, {"type": "text", "text": "So."})
    with pytest.raises(ProductError, match="no_tool_waits"):
        begin_run(user("Hi"), one, two, thread=THREAD)


def test_results_come_along_with_the_next_message_too(begin_run: Callable[..., Turn]) -> None:
    first = begin_run(user("Hi"), thread=THREAD, tools=[TOOL])
    ended(first, {"type": "tool_call", "id": "c", "name": "mine", "arguments": "{}"})
    next_ = begin_run(user("Hi"), result(f"{first.answer_id}:c", "Shown."), user("Thanks"), thread=THREAD)
    assert Message.objects.get(pk=first.answer_id).parts[-1]["text"] == "Shown."
    assert branch(next_)[2:3] == [("user", "Thanks")]


def test_tools_for_a_model_that_calls_none_are_refused(begin_run: Callable[..., Turn]) -> None:
    Model.objects.update(tools=False)
    with pytest.raises(ProductError, match="tools_missing"):
        begin_run(user("Hi"), tools=[TOOL])
    assert not Conversation.objects.exists()
