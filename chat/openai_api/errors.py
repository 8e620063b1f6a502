"""Return errors in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`."""

from collections.abc import Mapping
from typing import Any, TypedDict

from django.http import JsonResponse

from core.errors import ProductError
from core.sentences import Sentence

# The protocol's names for our codes. Clients of the protocol check for these names.
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
# HTTP statuses of failed turns, by code. Other failures of models and providers have the status 502.
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


class ErrorMembers(TypedDict):
    """The members of an error in OpenAI's protocol."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(TypedDict):
    """The body of an error in OpenAI's protocol."""

    error: ErrorMembers


def refused(param: str | None, detail: str, code: str = "invalid_value") -> ProductError:
    """Return the error (400) for an invalid request. `param` names the member: `messages[2].content`."""
    return ProductError(code, Sentence.verbatim(detail), param=param)


def failure(event: Mapping[str, Any], *, ends_with_answer: bool) -> ProductError:
    """Return the error for a turn's RUN_ERROR, or for its answer's `code` and `detail`.

    If the last message of the request is the assistant's and the provider refuses the request, the caller's messages
    are at fault: the status is 400.
    """
    code = event["code"]
    if code == "bad_model_request" and ends_with_answer:
        return ProductError(code, event["detail"], param="messages", should_retry=False)
    return ProductError(
        code, Sentence.load(event["detail"]), status=STATUSES.get(code, 502), should_retry=bool(event.get("retryable"))
    )


def body(error: ProductError) -> ErrorBody:
    """Return the error as the body of a response."""
    kind = "server_error" if error.status >= 500 else TYPES.get(error.status, "invalid_request_error")
    code = CODES.get(error.code, error.code)
    return {"error": {"message": error.detail, "type": kind, "param": error.extra.get("param"), "code": code}}


def refusal(error: ProductError) -> JsonResponse:
    """Return the error as a response."""
    response = JsonResponse(body(error), status=error.status, headers=error.headers)
    if "should_retry" in error.extra:
        # The official clients retry after 409, 429 and 5xx unless this header says no.
        response["X-Should-Retry"] = str(error.extra["should_retry"]).lower()
    return response
