"""Turn the error of a provider into a `ModelError` with a code and a sentence.

1. `_parse_report` finds the error in the JSON, in the shapes of OpenAI, Anthropic, llama.cpp, vLLM, Ollama, Mistral,
   and the compatible endpoints of Google and OpenRouter.
2. `_classify` looks for known words: images, a prompt that is too long, quota, reasoning, a parameter.
3. The HTTP status decides the rest.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from django.utils.translation import gettext_noop

from core.errors import ModelError
from core.sentences import Sentence
from llm.providers.overflow import Overflow, overflow_by_numbers, overflow_by_wording

# Keys of at least this length, in characters, are removed from a provider's message. Shorter keys, such as `x` or
# `none`, belong to local servers. They are no secrets, and any sentence may contain them.
MIN_SECRET_LENGTH = 8
MAX_QUOTE = 300  # characters of a provider's own message that people see

# Wordings for a limit on the images in one request. The first group is the number.
_IMAGE_LIMIT_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"at most (\d+) image",  # vLLM
        r"too many images and documents: \d+ \+ \d+ > (\d+)",  # Anthropic
        r"too many images.{0,80}?(?:maximum(?: of| is)?|up to|max(?: is| of)?|at most|limit(?: is| of)?|>)\W{0,2}(\d+)",
        r"(?:maximum|max) number of images \(?(\d+)",  # Azure
        r"(?:supports?|accepts?|allows?) (?:only )?(?:up to|at most|a maximum of) (\d+) images?",  # Groq
        r"(?:maximum|max|limit)(?: of| is)? (\d+) images?",
        r"no more than (\d+) images?",
    )
)
_IMAGE_WORDS = re.compile(r"too[ _]many[ _]images|number of images.{0,40}exceed", re.IGNORECASE)
_QUOTA_WORDS = re.compile(
    r"insufficient_quota|billing_error|credit balance is too low|insufficient (?:account )?(?:balance|credits?|funds)"
    r"|spend_limit|authz_(?:insufficient_balance|resource_limit_exceeded)",
    re.IGNORECASE,
)
_FILTER_WORDS = re.compile(r"content_filter|content_policy|content management policy|moderation", re.IGNORECASE)
_MODEL_WORDS = re.compile(
    r"model_not_found|not a valid model|(?:unknown|invalid) model|model .{1,100}(?:not found|does not exist)",
    re.IGNORECASE,
)
# Wordings of servers that refuse a parameter or its value for this model. The first group is the parameter's name.
_PARAMETER_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"unsupported (?:parameter|value): ['\"`]([\w.]+)['\"`]",  # OpenAI
        r"unknown parameter: ['\"`]([\w.]+)['\"`]",  # OpenAI
        r"unrecognized request arguments? supplied: (\w+)",  # Azure
        r"unknown name ['\"](\w+)['\"]",  # Google
        r"(prompt_cache_breakpoint|cache_control)\b",  # in any sentence, since only Glasshouse sends them
        r"property ['\"`]([\w.]+)['\"`] is unsupported",  # Groq
        r"^['\"`]?([\w.]+)['\"`]?: extra inputs are not permitted",  # Anthropic, vLLM
        r"\b(think) value .{1,40} is not supported",  # Ollama, for models that know only on and off
        r"['\"`]([\w.]+)['\"`] is (?:not supported|unsupported|deprecated|not permitted|not allowed)",
        r"does not support (?:the )?(?:parameter )?['\"`]([\w.]+)['\"`]",
        r"does not support (thinking)\b",  # Ollama
        r"adaptive (thinking) is not supported",  # Anthropic, for older models
        r"(tool call id) was .{1,100} but must be",  # Mistral
        r"when (tool_choice) forces tool use",  # Anthropic
        r"does not support this (tool_choice)",  # DeepSeek, while it thinks
        r"(system message) must be at the beginning",  # Qwen's template, in vLLM and llama.cpp
        r"conversation (roles) must alternate",  # Mistral's and Gemma's templates
        r"(encrypted content) is not supported",  # OpenAI, for `include`
        r"^(tool_choice|temperature|top_p)\b.{0,80}(?:not supported|not compatible|may not be|is not allowed)",
    )
)
# Refusals to stream, by OpenAI for organisations that are not verified, and by gateways.
_NO_STREAM = re.compile(
    r"\bstream(?:ing)?\b.{0,60}\b(?:not (?:supported|available|allowed|enabled|permitted|implemented)|unsupported)"
    r"|(?:does not|doesn't|do not|cannot|can't|not able to|unable to) (?:support )?stream(?:ing)?\b"
    r"|verified to stream\b|unsupported.{0,40}\bstream(?:ing)?\b"
    r"|\bstream['\"`]?\s*(?:=|:|must be|to)\s*['\"`]?false\b",
    re.IGNORECASE,
)
_MAX_OUTPUT = re.compile(r"max_tokens: \d+ > (\d+), which is the maximum", re.IGNORECASE)  # Anthropic
_RESPONSES_WORDS = re.compile(
    r"use (?:the )?(?:/?v1/)?responses(?: API| endpoint)?\b|only supported in v1/responses", re.I
)
_REASONING_MISSING = re.compile(
    r"(reasoning_content)\b.{0,80}must be passed back|missing (?:a )?`?(thought_?signature)", re.IGNORECASE
)
_REASONING_REFUSED = re.compile(
    r"invalid_encrypted_content|encrypted content.{0,60}(?:could not be|not) (?:verified|decrypted)"
    r"|invalid `?signature`? in `?thinking`?|without its required (?:'?reasoning'? item|following item)"
    r"|Expected `thinking`|corrupted thought signature|thought signature is not valid",
    re.IGNORECASE,
)
_REASONING_CODES = (
    ("responses_only", _RESPONSES_WORDS),
    ("reasoning_refused", _REASONING_REFUSED),
    ("reasoning_missing", _REASONING_MISSING),
)
_CODES_BY_STATUS = {
    401: "bad_credentials",
    403: "bad_credentials",
    402: "quota_exhausted",
    404: "model_not_found",
    408: "provider_timeout",
    409: "provider_overloaded",
    425: "provider_overloaded",
    429: "rate_limited",
}
_CODES_BY_TYPE = {
    "authentication_error": "bad_credentials",
    "permission_error": "bad_credentials",
    "billing_error": "quota_exhausted",
    "not_found_error": "model_not_found",
    "rate_limit_error": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "timeout_error": "provider_timeout",
    "invalid_request_error": "bad_model_request",
}
# Statuses for a wrong or too large request. None: an error within a stream.
_REFUSAL_STATUSES = (None, 400, 413, 422, 429)
# Codes that `reclassify_by_count` may replace.
_UNCLEAR_CODES = ("bad_model_request", "rate_limited", "provider_overloaded")
_SENTENCES = {
    "bad_credentials": gettext_noop(
        "The provider refused the API key, or the key lacks a permission. An administrator must check the key."
    ),
    "quota_exhausted": gettext_noop(
        "The provider account has no credit left. An administrator must add credit or raise its limit."
    ),
    "model_not_found": gettext_noop(
        "The provider does not offer this model. Choose another, or check its name and the base URL."
    ),
    "rate_limited": gettext_noop("The provider is receiving too many requests. Try again in a minute."),
    "provider_overloaded": gettext_noop(
        "The provider has an internal problem or is overloaded. Try again in a minute."
    ),
    "provider_timeout": gettext_noop("The model did not answer in time. Try again, or choose another model."),
    "provider_unreachable": gettext_noop(
        "The model's provider cannot be reached. Check its base URL, and whether it is running."
    ),
    "context_too_long": gettext_noop("The prompt is longer than the model can read. Remove files or earlier messages."),
    "too_many_images": gettext_noop(
        "The prompt has more images than the model accepts. Remove some of them, or choose another model."
    ),
    "content_filtered": gettext_noop(
        "The provider's content filter refused the prompt. Rephrase your message or remove the file."
    ),
    "stream_cut": gettext_noop("The connection to the model broke off before the answer was complete. Try again."),
    "malformed_stream": gettext_noop(
        "The provider sent a broken answer. Try again. If it happens again, check its kind and base URL."
    ),
    "bad_model_request": gettext_noop("The provider refused the request. Check the model's settings."),
    "responses_only": gettext_noop(
        "The provider offers this model with tools only in its Responses protocol. An administrator must choose that "
        "protocol as the provider's kind."
    ),
    "reasoning_missing": gettext_noop(
        "The provider needs its earlier reasoning, which is no longer stored. Start a new conversation or choose "
        "another model."
    ),
    "reasoning_refused": gettext_noop("The provider did not accept its earlier reasoning. Try again."),
}
_RETRYABLE_CODES = {
    "rate_limited",
    "provider_overloaded",
    "provider_timeout",
    "provider_unreachable",
    "stream_cut",
    "malformed_stream",
    "reasoning_refused",
}
_SECRET_PATTERN = re.compile(r"\b(?:sk|key|xai|gsk|AIza)[-_][\w*.-]{6,}|\bBearer\s+\S+|\bAIza[\w-]{20,}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Report:
    """A provider's report of its failure. Every field may be empty."""

    message: str
    names: str  # the machine-readable code and type, for searches
    kind: str
    limit: int | None
    status: int | None
    parameter: str = ""

    @property
    def overflow(self) -> Overflow | None:
        return overflow_by_wording(self.names, self.message, n_ctx=self.limit, status=self.status)


def malformed_error() -> ModelError:
    """Return the error for an answer that is not a valid stream."""
    return _make_error("malformed_stream")


def wrong_endpoint_error() -> ModelError:
    """Return the error for an answer with status 200 that does not come from a model, such as a web page."""
    sentence = Sentence(
        "The server at the provider's base URL is not a model server. Check the provider's kind and base URL."
    )
    return ModelError("malformed_stream", sentence, retryable=False)


def stream_cut_error() -> ModelError:
    """Return the error for a stream that broke off."""
    return _make_error("stream_cut")


def unreachable_error() -> ModelError:
    """Return the error for a server that cannot be reached."""
    return _make_error("provider_unreachable")


def timeout_error() -> ModelError:
    """Return the error for a server that did not answer in time."""
    return _make_error("provider_timeout")


def from_answer(status: int, headers: Mapping[str, str], body: bytes, api_key: str) -> ModelError:
    """Return the error for an answer with an error status. Names in `headers` may have any case."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None  # an HTML page of a proxy, for example: nothing to quote
    error = _classify(_parse_report(answer, status), api_key, _read_retry_after(headers))
    if error.code == "bad_model_request":
        error.refused_tools = refused_tools(answer)
        error.max_tools = max_tools(answer)
    return error


def from_event(body: Any, api_key: str) -> ModelError:
    """Return the error for an error object within a stream. An unknown cause makes it retryable."""
    return _classify(_parse_report(body, None), api_key, None)


# Wordings that name a tool by its number in the request.
_TOOL_INDEX_PATTERNS = (
    re.compile(r"\bfunction_declarations\[(\d+)\]"),  # Google
    re.compile(r"\btools(?:\[|\.)(\d+)\b"),  # OpenAI and Groq in brackets, Anthropic with a dot
)
_TOOL_NAME = re.compile(
    r"(?:\bfunctions?|\btools?)(?: name)?:? ['\"`“‘]?([A-Za-z0-9_-]{1,64})['\"`”’]?(?=[\s:;,.(]|$)", re.IGNORECASE
)
_MAX_TOOLS = re.compile(
    r"tools['\"`]?:? array too long\. Expected an array with maximum length (\d+)"  # OpenAI
    r"|(?:maximum|at most|up to|no more than|limit of)(?: number of)?\D{0,20}(\d+) (?:tools|function)"
    r"|(?:maximum|max) (?:number of )?(?:tools|functions)\D{1,40}?(\d+)"
    r"|\btools\W{1,4}(?:list should have|maximum number of items|must contain)\D{1,40}(\d+)"  # pydantic, Groq, Joi
    r"|\btools?(?: count)?\D{0,20}(?:\d{1,6}\D{1,20})?exceed\D{1,40}(\d++)(?! ?(?:char|tok|byte))"
    r"|too many (?:tools|functions)[^\n]{0,40}?(?:max|limit|most|allowed)\D{1,20}(\d+)"
    r"|\d (?:tools|functions)\D{1,20}(?:max|limit|most)\D{1,20}(\d+)",
    re.IGNORECASE,
)
MAX_SEARCHED = 20_000  # characters of an error to search for tools
MAX_DEPTH = 8  # levels of its JSON to search


def refused_tools(body: Any) -> frozenset[str | int]:
    """Return the tools that an error names: their names, and their numbers in the request's list, from 0.

    A name may be any word after “function” or “tool”. The caller must check whether the request has such a tool.
    """
    words = _join_texts(body)
    numbers = next(filter(None, (pattern.findall(words) for pattern in _TOOL_INDEX_PATTERNS)), [])
    return frozenset((*_TOOL_NAME.findall(words), *(int(number) for number in numbers if len(number) < 5)))


def max_tools(body: Any) -> int | None:
    """Return the maximum number of tools that an error names, or None if it names none."""
    match = _MAX_TOOLS.search(_join_texts(body))
    return int(next(number for number in match.groups() if number)[:6]) if match else None


def _join_texts(body: Any, depth: int = 0) -> str:
    """Return all texts in an error's JSON, one per line.

    Lists of names and numbers, which validators send, are joined with dots.
    """
    if isinstance(body, str):
        return body[:MAX_SEARCHED]
    if depth >= MAX_DEPTH:
        return ""
    if isinstance(body, Mapping):
        return "\n".join(_join_texts(each, depth + 1) for each in list(body.values())[:100])[:MAX_SEARCHED]
    if isinstance(body, list):
        if body and all(isinstance(each, str | int) for each in body):
            return ".".join(str(each) for each in body[:100])[:MAX_SEARCHED]
        return "\n".join(_join_texts(each, depth + 1) for each in body[:100])[:MAX_SEARCHED]
    return ""


# Members that hold the message: of most servers, Jina and FastAPI, Baidu, many servers in China, MiniMax, Apigee.
_MESSAGE_MEMBERS = (
    "message",
    "detail",
    "error_msg",
    "error_message",
    "errorMessage",
    "msg",
    "status_msg",
    "faultstring",
)
_CODE_MEMBERS = ("code", "error_code", "status_code")
# Members that hold the error: of most servers, Mistral, Cloudflare and watsonx, MiniMax, Apigee.
_ERROR_MEMBERS = ("error", "message", "errors", "base_resp", "fault")
MAX_NESTED = 4  # levels of nested errors


def is_error(body: Mapping[str, Any]) -> bool:
    """Return whether a JSON object has the form of an error instead of an answer."""
    nested = body.get("base_resp")
    if isinstance(nested, Mapping) and nested.get("status_code"):
        return True
    if body.get("error") or body.get("errors") or body.get("fault") or body.get("object") == "error":
        return True
    return "choices" not in body and any(isinstance(body.get(name), str) and body[name] for name in _MESSAGE_MEMBERS)


def find_error_in_list(body: bytes) -> Mapping[str, Any] | None:
    """Return the error in a JSON list, or None if the body is not such a list."""
    try:
        first = next(iter(json.loads(body)), None)
    except (ValueError, RecursionError):
        return None
    return first if isinstance(first, Mapping) and is_error(first) else None


def _find_inner_error(body: Any) -> Any:
    """Return the innermost error of a body. Servers and gateways wrap errors in objects and lists."""
    for _ in range(MAX_NESTED):
        if isinstance(body, list):
            body = body[0] if body else None  # Google's compatible endpoint
        if not isinstance(body, Mapping):
            return body
        nested = next((body[name] for name in _ERROR_MEMBERS if isinstance(body.get(name), Mapping | list)), None)
        if nested is None:
            text = body.get("error")
            return text if isinstance(text, str) and not isinstance(body.get("message"), str) else body
        body = nested
    return body


def _parse_report(body: Any, status: int | None) -> _Report:
    error = _find_inner_error(body)
    if isinstance(error, Mapping) and isinstance(error.get("detail"), list):
        return _parse_invalid_fields(error["detail"], status)
    if not isinstance(error, Mapping):
        text = error if isinstance(error, str) else ""
        return _Report(text, "", "", None, status, _refused_parameter(text, None, None))
    code = next((error[name] for name in _CODE_MEMBERS if error.get(name)), None)
    kind = error.get("type")
    limit = error.get("n_ctx")
    details = error.get("details")
    detail = details.get("error_code") if isinstance(details, Mapping) else None
    message = next((error[name] for name in _MESSAGE_MEMBERS if isinstance(error.get(name), str)), "")
    message = " ".join(text for text in (message, _upstream_message(error.get("metadata"))) if text)
    return _Report(
        message,
        " ".join(str(name) for name in (code, kind, detail) if name),
        str(kind or code or ""),
        limit if isinstance(limit, int) else None,
        code if status is None and isinstance(code, int) else status,
        _refused_parameter(message, error.get("param"), code),
    )


def _upstream_message(metadata: Any) -> str:
    """Return the message of the provider behind OpenRouter. OpenRouter's own is only “Provider returned error”."""
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    if not isinstance(raw, str):
        return ""
    try:
        return _parse_report(json.loads(raw), None).message or raw
    except (ValueError, RecursionError):
        return raw


def _refused_parameter(message: str, named: Any, code: Any) -> str:
    """Return the parameter that the model refuses, or "" if the error has another cause.

    `named`: the parameter by the error's own member.
    """
    if named == "stream" or _NO_STREAM.search(message):
        return "stream"
    if code in ("unsupported_parameter", "unsupported_value", "unknown_parameter") and isinstance(named, str):
        return named
    for pattern in (*_PARAMETER_PATTERNS, _REASONING_MISSING):
        if match := pattern.search(message):
            return next(name for name in match.groups() if name).lower()
    return ""


def _parse_invalid_fields(details: list[Any], status: int | None) -> _Report:
    """Return the report for a list of refused fields. FastAPI servers and Mistral send this form."""
    first = details[0] if details and isinstance(details[0], Mapping) else {}
    place = [str(each) for each in first.get("loc") or () if each != "body" and not isinstance(each, int)]
    message = str(first.get("msg") or "")
    kind = str(first.get("type") or "")
    forbidden = kind == "extra_forbidden" or "extra" in message.lower()
    return _Report(f"{'.'.join(place)}: {message}", kind, kind, None, status, ".".join(place) if forbidden else "")


def _classify(report: _Report, api_key: str, retry_after: float | None) -> ModelError:
    image_limit = _read_image_limit(report.message)
    if image_limit is not None or _IMAGE_WORDS.search(f"{report.names} {report.message}"):
        return _make_error("too_many_images", limit=image_limit)
    if (overflow := report.overflow) is not None:
        return _too_long_error(overflow, report.message)
    code = _choose_code(report)
    if code == "rate_limited" and retry_after is not None:
        wait = max(1, round(retry_after))
        sentence = Sentence("The provider is receiving too many requests. Try again in {wait} s.", wait=wait)
        return _make_error(code, sentence=sentence, retry_after=retry_after, message=report.message)
    if max_output := _MAX_OUTPUT.search(report.message):
        return _make_error(code, limit=int(max_output[1]), parameter="max_tokens")
    if code == "bad_model_request" and (quote := _quote_safely(report.message, api_key)):
        sentence = Sentence(
            "The provider refused the request and said: “{quote}” Check the model's settings.", quote=quote
        )
        return _make_error(code, sentence=sentence, parameter=report.parameter, message=report.message)
    wait_for = retry_after if code in _RETRYABLE_CODES else None
    # `reclassify_by_count` may examine only the message of a refusal: if a server is down, the numbers mean other
    # things.
    message = report.message if report.status in _REFUSAL_STATUSES else ""
    return _make_error(code, retry_after=wait_for, parameter=report.parameter, message=message)


def reclassify_by_count(error: ModelError, counted: int | None) -> ModelError:
    """Return `context_too_long` if the numbers in the error show that cause, else the error itself.

    `counted`: tokens of the prompt by our count.
    """
    without_limit = error.code == "context_too_long" and error.limit is None
    if counted is None or not (error.code in _UNCLEAR_CODES or without_limit) or not error.message:
        return error
    overflow = overflow_by_numbers(error.message, counted)
    if overflow is None:
        return error
    # A rate limit is not the model's window.
    about_account = overflow.is_account_limit or error.code == "rate_limited"
    return _too_long_error(replace(overflow, is_account_limit=about_account), error.message)


def _too_long_error(overflow: Overflow, message: str) -> ModelError:
    error = _make_error("context_too_long", limit=overflow.limit, message=message)
    error.requested = overflow.requested
    error.is_account_limit = overflow.is_account_limit
    error.proven = overflow.proven
    return error


def _choose_code(report: _Report) -> str:
    """Return the code of a failure. Words count before the status, since providers agree more on words."""
    text = f"{report.names} {report.message}"
    if _QUOTA_WORDS.search(text):
        return "quota_exhausted"
    if report.status == 429:
        return "rate_limited"
    for code, words in _REASONING_CODES:
        if words.search(text):
            return code
    if _FILTER_WORDS.search(report.names):
        return "content_filtered"
    if _MODEL_WORDS.search(text):
        return "model_not_found"
    return _code_by_status(report)


def _code_by_status(report: _Report) -> str:
    status = report.status
    if status is None or not 400 <= status < 600:
        return _CODES_BY_TYPE.get(report.kind, "provider_overloaded")
    if status in _CODES_BY_STATUS:
        return _CODES_BY_STATUS[status]
    return "provider_overloaded" if status >= 500 else "bad_model_request"


def _read_image_limit(message: str) -> int | None:
    for pattern in _IMAGE_LIMIT_PATTERNS:
        if match := pattern.search(message):
            return int(match[1][:5])
    return None


def _quote_safely(message: str, api_key: str) -> str:
    """Return the provider's message without keys and control characters, in at most `MAX_QUOTE` characters."""
    if len(api_key) >= MIN_SECRET_LENGTH:
        message = message.replace(api_key, "…")
    text = _SECRET_PATTERN.sub("…", " ".join("".join(char if char.isprintable() else " " for char in message).split()))
    return text if len(text) <= MAX_QUOTE else text[: MAX_QUOTE - 1] + "…"


def _read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait, None if no header names them.

    The header has seconds or a date (RFC 9110, 10.2.3). OpenAI's own header has milliseconds.
    """
    with suppress(ValueError, TypeError):  # TypeError: a date without a zone
        return (
            max(0.0, float(headers["retry-after-ms"]) / 1000)
            if "retry-after-ms" in headers
            else _parse_retry_after(headers)
        )
    return None


def _parse_retry_after(headers: Mapping[str, str]) -> float | None:
    value = headers.get("retry-after")
    if value is None:
        return None
    if value.strip().replace(".", "", 1).isdecimal():
        return float(value)
    return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())


def _make_error(
    code: str,
    *,
    sentence: Sentence | None = None,
    retry_after: float | None = None,
    limit: int | None = None,
    parameter: str = "",
    message: str = "",
) -> ModelError:
    error = ModelError(
        code,
        sentence or _SENTENCES[code],
        retryable=code in _RETRYABLE_CODES,
        retry_after=retry_after,
        limit=limit,
        parameter=parameter,
    )
    error.message = message
    return error
