"""What holds for every kind of provider."""

import asyncio
import socket
from contextlib import aclosing
from typing import Any

import pytest

from llm.errors import ModelError
from llm.events import ReasoningDelta, StepFinished, TextDelta, ToolCallDelta, ToolCallStarted, Usage
from llm.messages import Message
from llm.providers import create
from tests.llm.conftest import Connect, asking, events_of
from tests.scripted_model import DEFAULT_TEXT, ScriptedModel, expected_text

pytestmark = pytest.mark.parametrize("kind", ["openai", "anthropic"])

SECRET = "sk-very-secret-0123456789"


async def failure_of(connect: Connect, kind: str, script: dict[str, Any], **settings: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await events_of(connect(kind, **settings), asking(script))
    return caught.value


async def test_an_answer_arrives_piece_by_piece_with_its_usage(connect: Connect, kind: str) -> None:
    script = {"text": "The quick brown fox.", "usage": {"input": 90, "cached": 40, "output": 7, "reasoning": 2}}
    *said, last = await events_of(connect(kind), asking(script))
    assert [event.text for event in said if isinstance(event, TextDelta)] == ["The", " quick", " brown", " fox."]
    assert last == StepFinished("stop", Usage(90, 7, cached_input=40, reasoning=2))


async def test_reasoning_is_kept_apart_from_the_answer(connect: Connect, kind: str) -> None:
    events = await events_of(connect(kind), asking({"reasoning": "Let me see.", "text": "Four."}))
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "Let me see."
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Four."


async def test_tool_calls_arrive_in_order_with_their_arguments(connect: Connect, kind: str) -> None:
    calls = [
        {"name": "weather", "arguments": {"city": "Hà Nội", "days": 3}, "id": "first"},
        {"name": "clock", "arguments": "", "id": "second"},
        {"name": "broken", "arguments": '{"a": ', "id": "third"},
    ]
    events = await events_of(connect(kind), asking({"text": "I look.", "tool_calls": calls}))
    started = [event for event in events if isinstance(event, ToolCallStarted)]
    assert started == [
        ToolCallStarted(0, "first", "weather"),
        ToolCallStarted(1, "second", "clock"),
        ToolCallStarted(2, "third", "broken"),
    ]
    arguments = ["", "", ""]
    for event in events:
        if isinstance(event, ToolCallDelta):
            arguments[event.index] += event.arguments
    assert arguments == ['{"city": "H\\u00e0 N\\u1ed9i", "days": 3}', "", '{"a": ']
    assert isinstance(events[-1], StepFinished)
    assert events[-1].reason == "tool_calls"


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
async def test_the_reason_for_the_end_is_told(connect: Connect, kind: str, reason: str) -> None:
    events = await events_of(connect(kind), asking({"text": "And so", "finish": reason}))
    assert [event.reason for event in events if isinstance(event, StepFinished)] == [reason]


async def test_an_empty_answer_is_an_answer(connect: Connect, kind: str) -> None:
    events = await events_of(connect(kind), asking({"text": "", "usage": {"input": 5, "output": 0}}))
    assert events == [StepFinished("stop", Usage(5, 0))]


async def test_a_provider_without_usage_is_taken_as_it_is(connect: Connect, kind: str) -> None:
    events = await events_of(connect(kind), asking({"text": "Yes.", "usage": False}))
    assert events[-1] == StepFinished("stop", None)


async def test_a_finished_answer_leaves_its_connection_to_the_next(
    connect: Connect, kind: str, scripted_model: ScriptedModel
) -> None:
    provider = connect(kind)
    for _ in range(3):
        await events_of(provider, asking())
    assert len({record.connection for record in scripted_model.finished(count=3)}) == 1


async def test_many_answers_share_a_provider(connect: Connect, kind: str) -> None:
    provider = connect(kind)
    scripts = [{"tokens": 20 + number, "interval": 0.001} for number in range(20)]
    answers = await asyncio.gather(*(events_of(provider, asking(script)) for script in scripts))
    said = ["".join(event.text for event in events if isinstance(event, TextDelta)) for events in answers]
    assert said == [expected_text(script) for script in scripts]


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"status": 401, "message": f"Incorrect API key provided: {SECRET}"}, "bad_credentials", False),
        ({"status": 403}, "bad_credentials", False),
        ({"status": 404, "message": "no such model"}, "model_not_found", False),
        ({"status": 402, "message": "Insufficient Balance"}, "quota_exhausted", False),
        ({"status": 400, "message": "Your credit balance is too low."}, "quota_exhausted", False),
        ({"status": 429}, "rate_limited", True),
        ({"status": 429, "code": "insufficient_quota"}, "quota_exhausted", False),
        ({"status": 500}, "provider_overloaded", True),
        ({"status": 503, "message": "Loading model"}, "provider_overloaded", True),
        ({"status": 529}, "provider_overloaded", True),
        ({"status": 502, "body": "<html>Bad gateway</html>"}, "provider_overloaded", True),
        ({"status": 408}, "provider_timeout", True),
        ({"status": 422, "message": "temperature must be at most 2"}, "bad_model_request", False),
        ({"status": 400, "message": "blocked", "code": "content_filter"}, "content_filtered", False),
    ],
)
async def test_a_refusal_has_a_code_and_a_sentence(
    connect: Connect, kind: str, error: dict[str, Any], code: str, retryable: bool
) -> None:
    failure = await failure_of(connect, kind, {"error": error}, api_key=SECRET)
    assert (failure.code, failure.retryable) == (code, retryable)
    assert SECRET not in failure.detail
    assert failure.detail.endswith((".", "”"))


async def test_what_the_provider_says_of_a_bad_request_is_quoted_without_keys(connect: Connect, kind: str) -> None:
    message = f"Unknown parameter\n'foo' for key {SECRET} or Bearer abcdef " + "x" * 1000
    failure = await failure_of(connect, kind, {"error": {"status": 400, "message": message}}, api_key=SECRET)
    assert "Unknown parameter 'foo' for key … or …" in failure.detail
    assert SECRET not in failure.detail
    assert "abcdef" not in failure.detail
    assert len(failure.detail) < 500


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
async def test_a_rate_limit_says_when_to_try_again(
    connect: Connect, kind: str, headers: dict[str, str], seconds: float | None
) -> None:
    failure = await failure_of(connect, kind, {"error": {"status": 429, "headers": headers}})
    assert failure.retry_after == seconds


@pytest.mark.parametrize("style", ["openai", "llamacpp", "anthropic"])
async def test_a_prompt_that_is_too_long_names_the_limit(connect: Connect, kind: str, style: str) -> None:
    failure = await failure_of(connect, kind, {"context_limit": 12, "limit_style": style})
    assert (failure.code, failure.limit, failure.retryable) == ("context_too_long", 12, False)


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("This model's maximum context length is 8,192 tokens. However, you requested 9000 tokens.", 8192),
        ("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length", 200000),
        (
            "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            32768,
        ),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1048576),
        ("The decoder prompt (length 6000) is longer than the maximum model length of 4096.", 4096),
        ("the model is loaded with context length of only 4096 tokens, which is not enough", 4096),
        ("prompt too long; exceeded max context length by 120 tokens", None),
        ("the input length exceeds the context length", None),
    ],
)
async def test_every_dialect_of_too_long_is_understood(
    connect: Connect, kind: str, message: str, limit: int | None
) -> None:
    bodies: list[Any] = [
        {"error": {"message": message, "code": 400}},
        {"object": "error", "message": message, "type": "BadRequestError", "code": 400},
        [{"error": {"message": message, "status": "INVALID_ARGUMENT"}}],
        {"error": message},
    ]
    for body in bodies:
        failure = await failure_of(connect, kind, {"error": {"status": 400, "body": body}})
        assert (failure.code, failure.limit) == ("context_too_long", limit)


async def test_an_answer_limit_above_the_models_is_not_a_long_prompt(connect: Connect, kind: str) -> None:
    message = "max_tokens is too large: 100000. This model supports at most 16384 completion tokens."
    failure = await failure_of(connect, kind, {"error": {"status": 400, "message": message}})
    assert failure.code == "bad_model_request"


@pytest.mark.parametrize("pieces", [0, 3])
async def test_a_cut_connection_fails_after_what_had_come(connect: Connect, kind: str, pieces: int) -> None:
    said = []
    with pytest.raises(ModelError) as caught:
        async for event in connect(kind).stream(asking({"tokens": 10, "cut_after": pieces})):
            assert isinstance(event, TextDelta)
            said.append(event.text)
    assert "".join(said) == expected_text({"tokens": 10}, pieces)
    assert caught.value.code == ("stream_cut" if pieces else "provider_unreachable")
    assert caught.value.retryable


async def test_a_stream_that_just_ends_is_cut(connect: Connect, kind: str) -> None:
    failure = await failure_of(connect, kind, {"raw": []})
    assert (failure.code, failure.retryable) == ("stream_cut", True)


async def test_a_malformed_chunk_fails_after_what_had_come(connect: Connect, kind: str) -> None:
    said = []
    with pytest.raises(ModelError) as caught:
        async for event in connect(kind).stream(asking({"tokens": 10, "malformed_after": 4})):
            assert isinstance(event, TextDelta)
            said.append(event.text)
    assert "".join(said) == expected_text({"tokens": 10}, 4)
    assert caught.value.code == "malformed_stream"


@pytest.mark.parametrize(
    "payload", ["[]", "7", '{"choices": 7}', '{"choices": [7]}', '{"type": "content_block_delta", "delta": 7}', "{" * 9]
)
async def test_json_of_a_surprising_shape_is_malformed(connect: Connect, kind: str, payload: str) -> None:
    failure = await failure_of(connect, kind, {"raw": [payload]})
    expected = "malformed_stream"
    if ("choices" in payload and kind == "anthropic") or ("content_block" in payload and kind == "openai"):
        expected = "stream_cut"  # another protocol's object: nothing in it, and then no end
    assert failure.code == expected


async def test_what_is_not_a_stream_points_to_the_base_url(connect: Connect, kind: str) -> None:
    failure = await failure_of(connect, kind, {"whole": {"hello": "world"}})
    assert (failure.code, failure.retryable) == ("malformed_stream", False)
    assert "base URL" in failure.detail


async def test_an_error_with_status_200_is_an_error(connect: Connect, kind: str) -> None:
    failure = await failure_of(connect, kind, {"whole": {"error": {"message": "slow down", "code": 429}}})
    assert failure.code == "rate_limited"


@pytest.mark.parametrize("pieces", [0, 2])
async def test_a_model_that_falls_silent_times_out(connect: Connect, kind: str, pieces: int) -> None:
    failure = await failure_of(connect, kind, {"tokens": 5, "silent_after": pieces}, silence_timeout=0.2)
    assert (failure.code, failure.retryable) == ("provider_timeout", True)


async def test_a_server_that_is_not_there_is_unreachable(kind: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    provider = create(kind, base_url=f"http://127.0.0.1:{port}/v1", api_key="")
    for asked in (events_of(provider, asking()), provider.list_models()):
        with pytest.raises(ModelError) as caught:
            await asked
        assert (caught.value.code, caught.value.retryable) == ("provider_unreachable", True)
    await provider.close()


async def test_closing_the_iterator_closes_the_connection(
    connect: Connect, kind: str, scripted_model: ScriptedModel
) -> None:
    async with aclosing(connect(kind).stream(asking({"tokens": 10, "silent_after": 2}))) as events:  # type: ignore[type-var]  # the protocol types generators as iterators
        await anext(events)
    (record,) = await asyncio.to_thread(scripted_model.finished)
    assert record.ended == "client_closed"
    assert record.pieces == 2


@pytest.mark.parametrize("pieces", [0, 2])
async def test_cancelling_the_task_closes_the_connection(
    connect: Connect, kind: str, scripted_model: ScriptedModel, pieces: int
) -> None:
    task = asyncio.create_task(events_of(connect(kind), asking({"tokens": 10, "silent_after": pieces})))
    while not any(record.pieces == pieces for record in scripted_model.requests()):
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (record,) = await asyncio.to_thread(scripted_model.finished)
    assert record.ended == "client_closed"


async def test_the_key_is_sent_and_an_unusable_one_refused(
    connect: Connect, kind: str, scripted_model: ScriptedModel
) -> None:
    await events_of(connect(kind, api_key=SECRET), asking())
    assert scripted_model.finished()[0].headers["authorization"] == "present"
    with pytest.raises(ModelError) as caught:
        connect(kind, api_key="sk-…")
    assert caught.value.code == "bad_credentials"


async def test_the_models_of_an_endpoint_are_listed(connect: Connect, kind: str, scripted_model: ScriptedModel) -> None:
    scripted_model.set_script("calm", {"text": "Calm."})
    assert await connect(kind).list_models() == ["scripted", "scripted:calm"]


async def test_text_that_cannot_be_stored_is_made_sound(connect: Connect, kind: str) -> None:
    events = await events_of(connect(kind), asking({"text": "a\x00b \ud83d c \U0001f600"}))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "a\ufffdb \ufffd c \U0001f600"


async def test_an_unknown_model_is_not_found(connect: Connect, kind: str) -> None:
    with pytest.raises(ModelError) as caught:
        await events_of(connect(kind), asking(model="scripted:nobody"))
    assert caught.value.code == "model_not_found"


async def test_without_a_script_the_model_still_answers(connect: Connect, kind: str) -> None:
    events = await events_of(connect(kind), asking(messages=(Message("system", "Be kind."), Message("user", "Hi"))))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == DEFAULT_TEXT
