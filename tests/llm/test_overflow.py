"""A prompt that is too long is recognised by a known wording, by a code, or by the numbers of the refusal alone."""

import json
import random

import pytest

from core.errors import ModelError
from llm.learning import names_window
from llm.providers import errors
from llm.providers.overflow import overflow_by_numbers

SENT = 3_757  # tokens by our count


def refused(status: int | None, body: object, counted: int = SENT) -> ModelError:
    if status is None:
        error = errors.from_event(body, "")
    else:
        error = errors.from_answer(status, {}, body if isinstance(body, bytes) else json.dumps(body).encode(), "")
    return errors.reclassify_by_count(error, counted)


def body_of(message: str, **more: object) -> dict[str, object]:
    return {"error": {"message": message, **more}}


# Wordings of servers, long ones shortened, in the order: LM Studio (3), xAI, GLM, Bedrock (3), Cohere (2), Together,
# Fireworks, Kimi, MiniMax, DashScope (2), SGLang (2), Ollama (2), LiteLLM, OpenRouter, text-generation-webui, Vertex,
# Copilot, Volcengine, OpenAI's Responses, Poolside, DS4, Groq, Databricks, Cerebras, SambaNova, GLM in Chinese.
WORDINGS = [
    (None, body_of("The number of tokens to keep from the prompt is greater than the context length."), None),
    (400, {"error": "Keeping 3757: greater than the context length (n_keep: 3757>= n_ctx: 3000)."}, 3_000),
    (400, {"error": "Cannot truncate prompt with n_keep (3757) >= n_ctx (3000)"}, 3_000),
    (400, {"error": "This model's maximum prompt length is 3000 but the request contains 3757 tokens."}, 3_000),
    (400, body_of("Prompt exceeds max length", code="1261"), None),
    (400, {"message": "Input is too long for requested model."}, None),
    (400, {"message": "Too many input tokens. Max input tokens: 3000, request input token count: 3757"}, 3_000),
    (400, body_of("input length and `max_tokens` exceed context limit: 2500 + 1257 > 3000, decrease"), 3_000),
    (400, {"message": "too many tokens: total number of tokens in the prompt cannot exceed 3000 - got 3757."}, 3_000),
    (400, {"message": "too many tokens: size limit exceeded by 757 tokens. Try using shorter or fewer inputs."}, None),
    (422, body_of("The input (3757 tokens) is longer than the model's context length (3000 tokens)."), 3_000),
    (400, body_of("The prompt is too long: 3757, model maximum context length: 3000"), 3_000),
    (400, body_of("Invalid request: Your request exceeded model token limit: 3000 (requested: 3757)"), 3_000),
    (400, body_of("invalid params, context window exceeds limit (2013)"), None),
    (400, body_of("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 3000]"), 3_000),
    (400, {"code": "InvalidParameter", "message": "Range of input length should be [1, 3000]"}, 3_000),
    (400, {"message": "The input (3757 tokens) is longer than the model's context length (3000 tokens)."}, 3_000),
    (400, body_of("Input length (3757 tokens) exceeds the maximum allowed length (3000 tokens)."), 3_000),
    (500, {"error": "the input length exceeds the context length"}, None),
    (400, {"error": "prompt too long; exceeded max context length by 757 tokens"}, None),
    (400, body_of("litellm.BadRequestError: ContextWindowExceededError: it does not fit"), None),
    (400, body_of("This endpoint's maximum context length is 3000 tokens. However, you requested about 3757."), 3_000),
    (400, {"detail": "This model maximum context length is 3000 tokens. It resulted in over 3757 tokens."}, 3_000),
    (400, body_of("Unable to submit as the input token count is 3757 but model only supports up to 3000."), 3_000),
    (400, body_of("prompt token count of 3757 exceeds the limit of 3000"), 3_000),
    (400, body_of("Input length 3757 exceeds the maximum length 3000", code="InvalidParameter"), 3_000),
    (400, body_of("Input tokens exceed the configured limit of 3000 tokens. Yours resulted in 3757 tokens."), 3_000),
    (400, body_of("Input length 3757 exceeds the maximum allowed input length of 3000 tokens."), 3_000),
    (400, body_of("Prompt has 3,757 tokens, but the configured context size is 3,000 tokens"), 3_000),
    (400, body_of("Please reduce the length of the messages or completion."), None),
    (400, {"error_code": "BAD_REQUEST", "message": "prompt length 3757 exceeds max prompt length 3000"}, 3_000),
    (413, b"", None),
    (400, body_of("Requested tokens do not fit: max sequence length is 3000."), 3_000),
    (400, body_of("Prompt 超长", code="1261"), None),
    (400, body_of("Total tokens of image and text exceed max message tokens."), None),
    (400, body_of("The input or output tokens must be reduced in order to run successfully"), None),
    (400, {"error_code": 336104, "error_msg": "prompt tokens too long"}, None),
    (400, {"code": 10907, "message": "token count exceeds the upper limit"}, None),
    (400, {"success": False, "msg": "token总数超过限制"}, None),
    (400, body_of("Invalid 'input': string too long. At most 10485760 characters.", code="string_above"), None),
    (400, {"errors": [{"message": "AiError: 3757 tokens exceeded this model context window limit (3000)."}]}, 3_000),
    (400, {"errors": [{"code": "invalid", "message": "3757 tokens cannot exceed the total tokens limit 3000"}]}, 3_000),
    (400, body_of("Reduce the length of the messages. Current length is 3757 while limit is 3000"), 3_000),
    (
        400,
        body_of("Provider returned error", metadata={"raw": json.dumps(body_of("maximum context length is 3000"))}),
        3_000,
    ),
    (400, {"errors": [{"message": "AiError: context window limit exceeded", "code": 5021}]}, None),
    (422, {"detail": "Prompt length 20000 exceeds 15000"}, 15_000),
    (400, {"base_resp": {"status_code": 2013, "status_msg": "context window exceeds limit"}}, None),
    (400, {"error": body_of("prompt is too long: 3757 tokens > 3000 maximum")}, 3_000),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(WORDINGS)))
def test_every_wording_is_an_overflow_with_the_limit_that_it_names(number: int) -> None:
    status, body, limit = WORDINGS[number]
    error = refused(status, body)
    assert (error.code, error.limit, error.is_account_limit) == ("context_too_long", limit, False)


@pytest.mark.parametrize("status", [400, 413, 422, 429, None])
@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("Got 3801 tokens, at most 3000 are allowed", 3_000),
        ("Your request of 3,612 tokens does not fit into a capacity of 3,000", 3_000),
        ("Le prompt contient 3757 jetons (limite 3000)", 3_000),
        ("length 3757 > 3000", 3_000),
        ("3757 tokens, 3000 max", 3_000),
        ("slot 1: 3757 of 3000", None),  # nothing says that it is a limit
        ("Prompt 3757, cache 2100, something 1800", None),  # which of the two?
    ],
)
def test_numbers_alone_are_enough(status: int | None, message: str, limit: int | None) -> None:
    error = refused(status, body_of(message))
    assert (error.code, error.is_account_limit) == ("context_too_long", status == 429)
    if status != 413:  # by its status alone it is one without a limit
        assert error.limit == limit


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "max_tokens: 4000 > 3000, which is the maximum allowed number of output tokens for this model"),
        (400, "max_tokens must be at most 3000, got 3757"),
        (400, "Invalid value for max_completion_tokens: 3757 is above 3000"),
        (400, "thinking budget_tokens 3757 must be below 3000"),
        (422, "temperature must be between 0 and 2, got 3757"),
        (400, "The input image is 3757x3000 pixels; at most 2048 x 2048"),
        (400, "image exceeds 5 MB maximum: 3757000 bytes > 3000000 bytes"),
        (400, "Image width 3757 exceeds the maximum 3000"),
        (400, "This model was retired on 2026-03-01 12:30:00; request 3757, build 3000"),
        (400, "model llama-3757 is older than version 3000"),
        (400, "Invalid id req_3757 at 2026-11-26T22:10:07Z, see https://example.org/3000"),
        (400, "Unknown tool_call id 3757 of 3000"),
        (429, "Rate limit reached on tokens per min (TPM): Limit 6000, Used 5500, Requested 3757. Try again in 32s."),
        (429, "Too many requests: 3757 requests of 3000 requests this hour"),
        (429, "Too many tokens, please wait before trying again."),
        (400, "seed 3757 is larger than 3000"),
        (400, "max_tokens exceeds the maximum tokens of this model"),
        (400, "The batch of 3757 exceeds the maximum of 3000"),
        (400, "Unexpected token in JSON at position 3757, maximum 3000"),
        (400, "Invalid 'messages[1].content': array too long. Maximum length 3000, but got 3757"),
        (400, "Invalid schema: the description has 3757, maximum 3000"),
        (400, "Your account exceeds the token limit of the plan"),
        (429, "You exceeded the limit of tokens per minute"),
        (429, "This would exceed your rate limit of 30,000 input tokens per minute"),
        (400, "Something is wrong with 3757"),
        (400, "messages.12: 900 of 1000"),  # nothing near our count
        (401, "Incorrect API key 3757, 3000"),
        (503, "3757 waiting, at most 3000"),
    ],
)
def test_other_refusals_are_not_taken_for_an_overflow(status: int, message: str) -> None:
    assert refused(status, body_of(message)).code != "context_too_long"


@pytest.mark.parametrize("status", [413, 429])
def test_a_request_above_the_tokens_of_a_minute_is_an_overflow_of_the_account(status: int) -> None:
    message = "Request too large for `m` in organization `o` on tokens per minute (TPM): Limit 3000, Requested 3757"
    error = refused(status, body_of(message, code="rate_limit_exceeded"))
    assert (error.code, error.limit, error.requested, error.is_account_limit) == (
        "context_too_long",
        3_000,
        3_757,
        True,
    )


@pytest.mark.parametrize(
    "message",
    [
        "This request exceeds the limit of 3000 tokens per minute",
        "This would exceed your organization's rate limit of 3,000 input tokens per minute",
        "Number of request tokens has exceeded your per-minute rate limit (3000 tokens)",
    ],
)
def test_a_limit_of_a_minute_below_our_own_count_is_an_overflow_of_the_account(message: str) -> None:
    error = refused(429, body_of(message))
    assert (error.code, error.limit, error.is_account_limit) == ("context_too_long", 3_000, True)


@pytest.mark.parametrize(
    ("message", "proven"), [("n must be at most 3000, got 3757", False), ("at most 3000 tokens, got 3757", True)]
)
def test_a_limit_of_something_unnamed_proves_no_window(message: str, proven: bool) -> None:
    error = refused(400, body_of(message))
    assert (error.limit, names_window(error, SENT, 0)) == (3_000, proven)


@pytest.mark.parametrize(
    ("status", "message", "limit"),
    [
        (400, "At most 50 image(s) may be provided in one prompt.", 50),
        (400, "At most 5 image(s) may be provided in one request.", 5),
        (400, "messages: too many images and documents: 101 + 0 > 100", 100),
        (400, "Exceeded maximum number of images (50) allowed in the request.", 50),
        (400, "Too many images in request: 11 images provided, but the model supports a maximum of 10 images.", 10),
        (413, "Too many images provided. This model supports up to 5 images", 5),
        (400, "Too many images", None),
    ],
)
def test_a_limit_on_images_is_no_limit_of_tokens(status: int, message: str, limit: int | None) -> None:
    error = refused(status, body_of(message), counted=100)
    assert (error.code, error.limit) == ("too_many_images", limit)


def test_random_numbers_never_fail_and_name_only_what_is_smaller() -> None:
    chance = random.Random(5)
    for _ in range(2_000):
        counted = chance.randint(1, 200_000)
        words = [chance.choice(("limit", "tokens", "max", ">", "of", "(", "))", "")) for _ in range(6)]
        numbers = [str(chance.randint(0, 10 ** chance.randint(1, 14))) for _ in range(6)]
        text = " ".join(word + " " + number for word, number in zip(words, numbers, strict=True))
        overflow = overflow_by_numbers(text, counted)
        assert overflow is None or overflow.limit is None or 256 <= overflow.limit < (overflow.requested or 0)
