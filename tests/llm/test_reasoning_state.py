"""Reasoning that a provider wants back: kept through a loop of tools, dropped when another model takes over."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from core.sentences import Sentence
from llm import agent_loop
from llm.providers import find_missing_parameter, is_needed_in_later_turns
from llm.types.model_call import (
    LoopEvent,
    ModelMessage,
    ModelRequest,
    ParametersLeftOut,
    ProviderClient,
    ReasoningDelta,
    Sampling,
    StepFinished,
    TextDelta,
    ToolCall,
    ToolCallStarted,
    ToolDefinition,
)
from llm.types.tools import ToolOutput
from tests.llm.conftest import Connect, asking, events_of, text_of
from tests.scripted_model import ScriptedModel

THOUGHTS = {"google": {"thinking_config": {"include_thoughts": True}}}
SHOWN = {"type": "adaptive", "display": "summarized"}
# How a provider is reached: its kind, whose rules the server has, and the model's name.
SERVERS = {
    "responses": ("responses", "", "gpt-5.6-terra"),
    "openai": ("openai", "gpt", "gpt-5.6-terra"),
    "anthropic": ("anthropic", "", "claude-opus-5-5"),
    "gemini": ("openai", "gemini", "gemini-3-pro"),
    "deepseek": ("openai", "deepseek", "deepseek-v4"),
    "groq": ("openai", "groq", "qwen-4"),
    "ollama": ("ollama", "", "qwen4:8b"),
    "vllm": ("openai", "vllm", "Qwen/Qwen4-32B"),
    "llama.cpp": ("openai", "llamacpp", "gpt-oss-20b"),
    "mistral": ("openai", "mistral", "magistral-medium-3"),
    "qwen3": ("openai", "llamacpp", "Qwen3.6-27B"),
}
EFFORTS_SENT: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("responses", "high", {"reasoning": {"effort": "high", "summary": "auto"}}),
    ("responses", "none", {"reasoning": {"effort": "none"}}),
    ("anthropic", "low", {"output_config": {"effort": "low"}, "thinking": SHOWN}),
    ("claude-haiku-5-5", "none", {"output_config": None, "thinking": {"type": "disabled"}}),
    ("claude-sonnet-5-5", "none", {"output_config": None, "thinking": {"type": "between_tools"}}),
    ("deepseek", "none", {"thinking": {"type": "disabled"}, "reasoning_effort": None}),
    ("deepseek", "high", {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
    ("gemini", "low", {"reasoning_effort": "low", "extra_body": THOUGHTS}),
    ("gemini", "none", {"reasoning_effort": "none", "extra_body": None}),
    ("vllm", "low", {"reasoning_effort": "low"}),
    ("qwen3", "low", {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": True}}),
    ("qwen3", "none", {"reasoning_effort": None, "chat_template_kwargs": {"enable_thinking": False}}),
    ("ollama", "none", {"think": False}),
)
WEATHER = ToolDefinition("weather", "Tells the weather.", {"type": "object", "properties": {"city": {}}})
LOOP = {
    "steps": [
        {"reasoning": f"Thought number {n}.", "text": "", "tool_calls": [{"name": "weather", "arguments": {"city": n}}]}
        for n in range(3)
    ]
    + [{"reasoning": "Now I know.", "text": "It rains everywhere."}]
}


class Weather:
    definition = WEATHER
    timeout = 10.0

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        return Sentence("Looking")

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        return ToolOutput(f"Rain in {arguments['city']}.")


async def turn(
    provider: ProviderClient, model: str, script: dict[str, Any], history: Sequence[ModelMessage] = (), **fields: Any
) -> tuple[list[LoopEvent], list[ModelMessage]]:
    """Run one turn after `history`. Return its events and its messages, with the reasoning that later turns need."""
    question = ModelMessage("user", f"What is the weather?\nscript: {json.dumps(script)}")
    sent: list[ModelMessage] = []

    async def prepare(step_plan: agent_loop.StepPlan, added: Sequence[ModelMessage]) -> agent_loop.PreparedCall:
        sent[:] = added
        messages = (ModelMessage("system", "Be brief."), *history, question, *added)
        fields_of_request: dict[str, Any] = {
            "model": model,
            "messages": messages,
            "max_output": 500,
            "tools": (WEATHER,),
        }
        return agent_loop.PreparedCall(provider, ModelRequest(**(fields_of_request | fields)), {"weather": Weather()})

    events = [event async for event in agent_loop.run(prepare)]
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    later = [each if each.reasoning and is_needed_in_later_turns(each.reasoning) else forgotten(each) for each in sent]
    return events, [question, *later, ModelMessage("assistant", text)]


def forgotten(message: ModelMessage) -> ModelMessage:
    return replace(message, reasoning=None)


def statuses(scripted_model: ScriptedModel) -> list[int | None]:
    return [record.status for record in scripted_model.requests() if record.method == "POST"]


@pytest.mark.parametrize("server", SERVERS)
async def test_a_loop_of_three_calls_and_the_next_turn_are_taken(
    server: str, connect: Connect, scripted_model: ScriptedModel
) -> None:
    kind, dialect, model = SERVERS[server]
    provider = connect(kind, dialect=dialect)
    events, text = await turn(provider, model, LOOP)
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)).startswith("Thought number 0.")
    assert text[-1].text == "It rains everywhere."
    assert len(text) == 8
    again, _ = await turn(provider, model, LOOP, text)
    assert [event for event in again if isinstance(event, StepFinished)][-1].reason == "stop"
    refused = statuses(scripted_model).count(400)
    assert refused == (2 if server == "openai" else 0)  # these two are how the other protocol is found out
    assert statuses(scripted_model).count(422) == (server == "mistral")  # which takes no word on usage


@pytest.mark.parametrize("first", SERVERS)
@pytest.mark.parametrize("second", SERVERS)
async def test_another_model_takes_the_conversation_over_and_gives_it_back(
    first: str, second: str, connect: Connect
) -> None:
    conversation: list[tuple[str, ModelMessage]] = []
    for server in (first, second, first):
        kind, dialect, model = SERVERS[server]
        history = [message if by == server else forgotten(message) for by, message in conversation]
        _, more = await turn(connect(kind, dialect=dialect), model, LOOP, history)
        conversation += [(server, message) for message in more]
    assert conversation[-1][1].text == "It rains everywhere."


async def test_an_effort_is_said_as_each_protocol_says_it(connect: Connect, scripted_model: ScriptedModel) -> None:
    for server, effort, expected in EFFORTS_SENT:
        kind, dialect, model = SERVERS.get(server, ("anthropic", "", server))
        request = asking({"reasoning": "Hm.", "text": "Yes."}, model=model, sampling=Sampling(reasoning_effort=effort))
        events = await events_of(connect(kind, dialect=dialect), request)
        assert text_of(events) == "Yes.", server
        body = scripted_model.requests()[-1].body
        assert {name: body.get(name) for name in expected} == expected, server
        reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
        assert reasoning == ("" if effort == "none" else "Hm."), server


async def test_a_model_of_ollama_that_knows_no_levels_is_switched(
    connect: Connect, scripted_model: ScriptedModel
) -> None:
    provider = connect("ollama")
    for effort in ("high", "none", "low"):
        request = asking(
            {"reasoning": "Hm.", "text": "Yes."}, model="qwen4:8b", sampling=Sampling(reasoning_effort=effort)
        )
        events = await events_of(provider, request)
        assert not [event for event in events if isinstance(event, ParametersLeftOut)]
    bodies = [record.body for record in scripted_model.requests() if record.method == "POST"]
    assert [body["think"] for body in bodies] == ["high", True, False, True]


async def test_a_switch_that_a_server_does_not_know_is_said_as_an_effort(
    connect: Connect, scripted_model: ScriptedModel
) -> None:
    provider = connect("openai", dialect="groq")
    for effort in ("none", "low"):
        await events_of(provider, asking(model="qwen3-32b", sampling=Sampling(reasoning_effort=effort)))
    bodies = [record.body for record in scripted_model.requests() if record.method == "POST"]
    assert statuses(scripted_model) == [400, 200, 200]
    assert [body.get("reasoning_effort") for body in bodies] == [None, "none", "low"]
    assert ["chat_template_kwargs" in body for body in bodies] == [True, False, False]


async def test_an_effort_that_a_model_refuses_is_left_out_and_others_are_not(
    connect: Connect, scripted_model: ScriptedModel
) -> None:
    for kind, model, refused in (("responses", "gpt-5.6-sol", "minimal"), ("ollama", "llama4", "high")):
        provider = connect(kind)
        for effort, left_out in ((refused, True), ("none", False), (refused, True)):
            request = asking({"text": "Yes."}, model=model, sampling=Sampling(reasoning_effort=effort))
            events = await events_of(provider, request)
            assert (ParametersLeftOut(("reasoning_effort",)) in events) is left_out
            assert text_of(events) == "Yes."
    assert statuses(scripted_model) == [400, 200, 200, 200] * 2


async def test_summaries_are_asked_for_until_a_model_has_none(connect: Connect, scripted_model: ScriptedModel) -> None:
    provider = connect("responses")
    for _ in range(2):
        assert text_of(await events_of(provider, asking({"text": "Yes."}, model="gpt-4.1"))) == "Yes."
    assert statuses(scripted_model) == [400, 200, 200]
    assert "reasoning" not in scripted_model.requests()[-1].body


async def test_older_models_of_anthropic_are_asked_without_thinking(
    connect: Connect, scripted_model: ScriptedModel
) -> None:
    provider = connect("anthropic")
    request = asking({"text": "Yes."}, model="claude-opus-4-5", sampling=Sampling(reasoning_effort="low"))
    for _ in range(2):
        events = await events_of(provider, request)
        assert not any(isinstance(event, ParametersLeftOut) for event in events)
    assert statuses(scripted_model) == [400, 200, 200]
    assert scripted_model.requests()[-1].body["output_config"] == {"effort": "low"}


@pytest.mark.parametrize(("model", "left_out"), [("claude-opus-5-5", True), ("claude-haiku-5-5", False)])
async def test_a_call_that_a_thinking_model_cannot_be_made_to_make_is_asked_for_and_said(
    model: str, left_out: bool, connect: Connect
) -> None:
    request = asking({"text": "Yes."}, model=model, tools=(WEATHER,), tool_choice="required")
    events = await events_of(connect("anthropic"), request)
    assert (events[0] == ParametersLeftOut(("tool_choice",))) is left_out
    assert text_of(events) == "Yes."


async def test_thinking_that_cannot_be_switched_off_is_said(connect: Connect) -> None:
    request = asking({"text": "Yes."}, model="claude-opus-5-5", sampling=Sampling(reasoning_effort="none"))
    assert ParametersLeftOut(("reasoning_effort",)) in await events_of(connect("anthropic"), request)


async def test_mistral_gets_ids_of_its_length_whoever_made_the_call(
    connect: Connect, scripted_model: ScriptedModel
) -> None:
    for model in ("magistral-medium-3", "a-name-that-tells-nothing"):
        call = ToolCall("call_0123456789", "weather", "{}")
        messages = (
            *(ModelMessage("user", "Hi"), ModelMessage("assistant", tool_calls=(call,))),
            ModelMessage("tool", "Rain.", tool_call_id=call.id),
        )
        events = await events_of(
            connect("openai", dialect="mistral"), asking(messages=messages, model=model, tools=(WEATHER,))
        )
        assert isinstance(events[-1], StepFinished)
        message, result = scripted_model.requests()[-1].body["messages"][1:]
        assert len(result["tool_call_id"]) == 9
        assert message["tool_calls"][0]["id"] == result["tool_call_id"]


async def test_reasoning_goes_back_as_it_came(connect: Connect, scripted_model: ScriptedModel) -> None:
    await turn(connect("responses"), "gpt-5.6-terra", LOOP)
    last = scripted_model.requests()[-1].body
    kinds = [item.get("type", "message") for item in last["input"]]
    assert kinds == ["message", *["reasoning", "function_call", "function_call_output"] * 3]
    assert last["store"] is False
    assert last["truncation"] == "disabled"
    assert last["instructions"] == "Be brief."


async def test_reasoning_that_is_not_taken_back_is_left_out_and_said(connect: Connect) -> None:
    """The signature covers the messages before it, which may have changed."""
    provider = connect("anthropic")
    first, _ = await turn(provider, "claude", LOOP)
    [state] = [event.reasoning for event in first if isinstance(event, StepFinished)][:1]
    identity = next(event.id for event in first if isinstance(event, ToolCallStarted))
    call = ToolCall(identity, "weather", '{"city": 0}')
    messages = (
        ModelMessage("user", f"Something else\nscript: {json.dumps({'text': 'Well.'})}"),
        ModelMessage("assistant", "", tool_calls=(call,), reasoning=state),
        ModelMessage("tool", "Rain.", tool_call_id=identity),
    )
    events = await events_of(provider, asking(messages=messages, tools=(WEATHER,)))
    assert events[0] == ParametersLeftOut(("reasoning of earlier steps",))
    assert text_of(events) == "Well."


async def test_what_a_model_refuses_is_left_out_once_and_for_all(
    connect: Connect, scripted_model: ScriptedModel
) -> None:
    provider = connect("openai", dialect="gpt")
    request = asking({"text": "Yes."}, temperature=0.2, sampling=Sampling(verbosity="low"))
    for _ in range(2):
        events = await events_of(provider, request)
        assert events[0] == ParametersLeftOut(("temperature",))
        assert text_of(events) == "Yes."
    assert statuses(scripted_model) == [400, 400, 200, 200]  # the name of the limit, the temperature
    assert scripted_model.requests()[-1].body["max_completion_tokens"] == 500
    assert scripted_model.requests()[-1].body["verbosity"] == "low"


def test_what_a_protocol_has_no_word_for_is_known_before() -> None:
    assert find_missing_parameter("responses", Sampling(seed=1)) == "seed"
    assert find_missing_parameter("responses", Sampling(top_p=0.5, reasoning_effort="minimal"), stop=["END"]) == "stop"
    assert find_missing_parameter("ollama", Sampling(verbosity="low")) == "verbosity"
    assert find_missing_parameter("ollama", Sampling(seed=1, top_p=0.5), stop=["END"]) is None


async def test_a_prompt_beyond_the_window_is_an_error_at_ollama(
    connect: Connect, scripted_model: ScriptedModel
) -> None:
    provider = connect("ollama")
    request = asking({"text": "Yes."}, text="long " * 2_000, window=1_000)
    with pytest.raises(Exception, match="longer than the model can read") as failure:
        await events_of(provider, request)
    assert failure.value.code == "context_too_long"  # type: ignore[attr-defined]
    events = await events_of(provider, asking({"text": "Yes."}, text="long " * 2_000, window=8_000))
    assert text_of(events) == "Yes."
    assert scripted_model.requests()[-1].body["options"]["num_ctx"] == 8_000
