"""Every failure of a model call, for every kind of provider."""

import socket
from typing import Any

import pytest

from core.errors import ModelError
from llm.providers import create_client
from tests.llm.conftest import Connect, asking, events_of, failure_after, text_of
from tests.scripted_model import expected_text

pytestmark = pytest.mark.parametrize("kind", ["openai", "anthropic"])

SECRET = "sk-very-secret-0123456789"


async def failure_of(connect: Connect, kind: str, script: dict[str, Any], **settings: Any) -> ModelError:
    return (await failure_after(connect(kind, **settings), asking(script)))[1]


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
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the "
            "messages, 1000 in the completion).",
            4096,
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 1000. This model's maximum context length is 4096 "
            "tokens and your request has 4000 input tokens (1000 > 4096 - 4000).",
            4096,
        ),
        (
            "You passed 5000 input tokens and requested 100 output tokens. However, the model's context length is only "
            "4096 tokens, resulting in a maximum input length of 3996 tokens.",
            4096,
        ),
        ("Input length (5000) exceeds model's maximum context length (4096).", 4096),
        ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", 4096),
        ("request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it", 4096),
        ("the request exceeds the available context size. try increasing the context size", None),
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
    events, failure = await failure_after(connect(kind), asking({"tokens": 10, "cut_after": pieces}))
    assert text_of(events) == expected_text({"tokens": 10}, pieces)
    assert failure.code == ("stream_cut" if pieces else "provider_unreachable")
    assert failure.retryable


async def test_a_stream_that_just_ends_is_cut(connect: Connect, kind: str) -> None:
    failure = await failure_of(connect, kind, {"raw": []})
    assert (failure.code, failure.retryable) == ("stream_cut", True)


async def test_a_malformed_chunk_fails_after_what_had_come(connect: Connect, kind: str) -> None:
    events, failure = await failure_after(connect(kind), asking({"tokens": 10, "malformed_after": 4}))
    assert text_of(events) == expected_text({"tokens": 10}, 4)
    assert failure.code == "malformed_stream"


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
    provider = create_client(kind, base_url=f"http://127.0.0.1:{port}/v1", api_key="")
    for call in (events_of(provider, asking()), provider.list_models()):
        with pytest.raises(ModelError) as caught:
            await call
        assert (caught.value.code, caught.value.retryable) == ("provider_unreachable", True)
    await provider.close()


async def test_an_unknown_model_is_not_found(connect: Connect, kind: str) -> None:
    with pytest.raises(ModelError) as caught:
        await events_of(connect(kind), asking(model="scripted:nobody"))
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("url", ["localhost:8080/v1", "http://[not-a-url", "http://host:port/v1", "ftp://host", "/v1"])
def test_a_base_url_that_is_none_is_told_at_once(kind: str, url: str) -> None:
    with pytest.raises(ModelError) as caught:
        create_client(kind, base_url=url, api_key="")
    assert (caught.value.code, caught.value.retryable) == ("provider_unreachable", False)
