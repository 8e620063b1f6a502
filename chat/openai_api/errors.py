"""Errors in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`."""

from typing import Any

from django.http import JsonResponse

from chat.realtime.events import WireEvent
from core.errors import ProductError
from core.sentences import Sentence

# Where the protocol has a name for it, which its clients look for.
CODES = {
    "bad_token": "invalid_api_key",
    "not_authenticated": "invalid_api_key",
    "throttled": "rate_limit_exceeded",
    "rate_limited": "rate_limit_exceeded",
    "quota_exhausted": "insufficient_quota",
    "context_too_long": "context_length_exceeded",
    "file_too_long": "context_length_exceeded",
    "content_filtered": "content_filter",
    "model_declined": "content_filter",
}
# Of a turn that has failed; other failures of models and their providers are 502, of the product itself 500.
STATUSES = {
    "context_too_long": 400,
    "file_too_long": 400,
    "content_filtered": 400,
    "model_declined": 400,
    "no_model": 503,
    "rate_limited": 429,
    "quota_exhausted": 429,
    "provider_timeout": 504,
    "interrupted": 503,
    "internal_error": 500,
}
TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def refused(param: str | None, detail: str, code: str = "invalid_value") -> ProductError:
    """400 for a request that cannot be honoured; `param` names what is wrong, as in `messages[2].content`."""
    return ProductError(code, Sentence.verbatim(detail), param=param)


def failure(event: WireEvent, *, ends_with_answer: bool) -> ProductError:
    """Return the error of a turn's RUN_ERROR, or of its answer's `code` and `detail`.

    A provider that refuses a request whose last message is the assistant's refuses what the caller sent: 400.
    """
    code = event["code"]
    if code == "bad_model_request" and ends_with_answer:
        return ProductError(code, event["detail"], param="messages", should_retry=False)
    return ProductError(
        code, Sentence.load(event["detail"]), status=STATUSES.get(code, 502), should_retry=bool(event.get("retryable"))
    )


def body(error: ProductError) -> dict[str, Any]:
    kind = "server_error" if error.status >= 500 else TYPES.get(error.status, "invalid_request_error")
    code = CODES.get(error.code, error.code)
    return {"error": {"message": error.detail, "type": kind, "param": error.extra.get("param"), "code": code}}


def refusal(error: ProductError) -> JsonResponse:
    response = JsonResponse(body(error), status=error.status, headers=error.headers)
    if "should_retry" in error.extra:
        # The official clients ask again after 409, 429 and 5xx, unless they are told that it would not help.
        response["X-Should-Retry"] = str(error.extra["should_retry"]).lower()
    return response
