"""How each protocol says that an answer has ended, and that its end is none."""

import asyncio

import pytest

from llm.types.model_call import StepFinished, Usage
from tests.llm.conftest import Connect, asking, events_of, failure_after, text_of
from tests.scripted_model import ScriptedModel


@pytest.mark.parametrize(
    ("kind", "word", "reason"),
    [
        ("openai", "content_filter", "content_filter"),
        ("openai", "content_filter: SAFETY", "content_filter"),
        ("openai", "RECITATION", "content_filter"),
        ("openai", "MAX_TOKENS", "length"),
        ("openai", "model_length", "context_window"),
        ("openai", "refusal", "refusal"),
        ("openai", "eos", "stop"),
        ("openai", "COMPLETE", "stop"),
        ("openai", "content-filter", "content_filter"),
        ("openai", "guardrail_intervened", "content_filter"),
        ("openai", "ERROR_TOXIC", "content_filter"),
        ("openai", "token_limit", "length"),
        ("anthropic", "guardrail_intervened", "content_filter"),
        ("anthropic", "MAX_TOKENS", "length"),
        ("ollama", "SAFETY", "content_filter"),
        ("responses", "length", "length"),
        ("responses", "content_filter", "content_filter"),
        ("responses", "refusal", "refusal"),
        ("responses", "pause", "pause"),
        ("anthropic", "length", "length"),
        ("anthropic", "context_window", "context_window"),
        ("anthropic", "refusal", "refusal"),
        ("anthropic", "stop_sequence", "stop"),
        ("ollama", "length", "length"),
    ],
)
async def test_what_a_server_says_of_the_end(connect: Connect, kind: str, word: str, reason: str) -> None:
    events = await events_of(connect(kind), asking({"text": "And so", "finish": word}))
    assert text_of(events) == "And so"
    assert isinstance(events[-1], StepFinished)
    assert events[-1].reason == reason


@pytest.mark.parametrize(
    ("kind", "word"), [("ollama", "load"), ("ollama", "unload"), ("openai", "abort"), ("openai", "ERROR")]
)
async def test_a_server_that_gave_up_has_not_answered(connect: Connect, kind: str, word: str) -> None:
    _, error = await failure_after(connect(kind), asking({"text": "", "finish": word}))
    assert error.unavailable


async def test_a_model_that_pauses_is_sent_back_what_it_said_and_goes_on(
    connect: Connect, scripted_model: ScriptedModel
) -> None:
    counts = {"input": 40, "output": 3}
    paused = {"reasoning": "I look it up.", "text": "One moment.", "finish": "pause", "usage": counts}
    script = {"steps": [paused, {"text": " It rains.", "usage": counts}]}
    events = await events_of(connect("anthropic"), asking(script, model="claude-opus-5-5"))
    assert text_of(events) == "One moment. It rains."
    assert [event for event in events if isinstance(event, StepFinished)] == [StepFinished("stop", Usage(80, 6))]
    first, second = await asyncio.to_thread(scripted_model.finished, "", 2)
    assert second.body["messages"][:-1] == first.body["messages"]
    assert [block["type"] for block in second.body["messages"][-1]["content"]] == [
        "thinking",
        "text",
        "server_tool_use",
    ]


async def test_a_model_that_pauses_for_ever_is_left_alone_in_the_end(
    connect: Connect, scripted_model: ScriptedModel
) -> None:
    events = await events_of(connect("anthropic"), asking({"text": "Wait.", "finish": "pause"}, model="claude-4"))
    assert isinstance(events[-1], StepFinished)
    assert (events[-1].reason, text_of(events)) == ("pause", "Wait." * 6)
    assert len(await asyncio.to_thread(scripted_model.finished, "", 6)) == 6
