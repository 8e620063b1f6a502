"""Return errors in the shape of the caller's protocol.

OpenAI's is `{"error": {"message", "type", "param", "code"}}`. Anthropic's is `{"type": "error", "error": {"type",
"message"}, "request_id"}`.
"""

from collections.abc import Mapping
from typing import Any, TypedDict

from django.http import HttpRequest, HttpResponseBase, JsonResponse

from core.errors import ProductError
from core.logs.context import log_fields
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
# Anthropic's types of errors, by HTTP status.
ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
ANTHROPIC_PATH = "/v1/messages"
ANTHROPIC_VERSION = "anthropic-version"  # the header that Anthropic's clients send
# Claude Code recognises a prompt that is too long by these words of Anthropic's error.
TOO_LONG_MESSAGE = "prompt is too long"
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


def invalid_request(param: str | None, detail: str, code: str = "invalid_value") -> ProductError:
    """Return the error (400) for an invalid request. `param` names the member: `messages[2].content`."""
    return ProductError(code, Sentence.verbatim(detail), param=param)


def turn_error(event: Mapping[str, Any], *, prefilled: str | None = None) -> ProductError:
    """Return the error for a turn's RUN_ERROR, or for its answer's `code` and `detail`.

    `prefilled`: the request's member with the messages, if the last of them is the assistant's. If the provider refuses
    such a request, the caller's messages are at fault: the status is 400.
    """
    code = event["code"]
    if code == "bad_model_request" and prefilled is not None:
        return ProductError(code, event["detail"], param=prefilled, should_retry=False)
    return ProductError(
        code, Sentence.load(event["detail"]), status=STATUSES.get(code, 502), should_retry=bool(event.get("retryable"))
    )


def error_body(error: ProductError) -> ErrorBody:
    """Return the error as the body of a response."""
    kind = "server_error" if error.status >= 500 else TYPES.get(error.status, "invalid_request_error")
    code = CODES.get(error.code, error.code)
    return {"error": {"message": error.detail, "type": kind, "param": error.extra.get("param"), "code": code}}


class AnthropicErrorMembers(TypedDict):
    """The members of an error in Anthropic's protocol. `code` and `param` are ours."""

    type: str
    message: str
    code: str
    param: str | None


class AnthropicErrorBody(TypedDict):
    """The body of an error in Anthropic's protocol."""

    type: str
    error: AnthropicErrorMembers
    request_id: str


def anthropic_error_body(error: ProductError) -> AnthropicErrorBody:
    """Return the error as the body of a response in Anthropic's protocol."""
    other = "api_error" if error.status >= 500 else "invalid_request_error"
    kind = ANTHROPIC_TYPES.get(error.status, other)
    code = CODES.get(error.code, error.code)
    message = f"{TOO_LONG_MESSAGE}: {error.detail}" if code == "context_length_exceeded" else error.detail
    members: AnthropicErrorMembers = {
        "type": kind,
        "message": message,
        "code": code,
        "param": error.extra.get("param"),
    }
    return {"type": "error", "error": members, "request_id": log_fields().get("request_id", "")}


def speaks_anthropic(request: HttpRequest) -> bool:
    """Return whether the caller speaks Anthropic's protocol."""
    return request.path.startswith(ANTHROPIC_PATH) or ANTHROPIC_VERSION in request.headers


def add_request_id(response: HttpResponseBase) -> None:
    """Set the header in which Anthropic's clients read the id of the request."""
    response["Request-Id"] = log_fields().get("request_id", "")


def error_response(request: HttpRequest, error: ProductError) -> JsonResponse:
    """Return the error as a response in the caller's protocol."""
    content = anthropic_error_body(error) if speaks_anthropic(request) else error_body(error)
    response = JsonResponse(content, status=error.status, headers=error.headers)
    if speaks_anthropic(request):
        add_request_id(response)
    if "should_retry" in error.extra:
        # The official clients retry after 409, 429 and 5xx unless this header says no.
        response["X-Should-Retry"] = str(error.extra["should_retry"]).lower()
    return response
