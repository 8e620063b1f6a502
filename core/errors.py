"""Errors with a code and a sentence, mapped once per interface (API, page, socket).

Every error that a person or a program may get derives from `ProductError`. Its text is shown to people unchanged: one
or two sentences that say what to do, without secrets or internals.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from core.sentences import Sentence

MAX_DETAIL_LENGTH = 2_000  # characters; a detail may contain values of the request, which may have megabytes


class ProductError(Exception):
    """`code` is stable and machine-readable, `status` the HTTP status, `extra` more JSON members for programs.

    `sentence` is for people, who read it in their language; `detail` is its English text, for models, logs and
    commands. A literal is enough if the sentence has no values. `retry_after`: seconds until the next try; None
    if unknown.
    """

    def __init__(
        self,
        code: str,
        sentence: Sentence | str,
        *,
        status: int = 400,
        retry_after: int | None = None,
        **extra: Any,
    ) -> None:
        self.sentence = Sentence.of(sentence).shortened(MAX_DETAIL_LENGTH)
        self.detail = self.sentence.english
        super().__init__(f"{code}: {self.detail}")
        self.code = code
        self.status = status
        self.extra = extra if retry_after is None else {**extra, "retry_after": retry_after}

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the HTTP response: `Retry-After` for a temporary error, what 401 demands (RFC 9110)."""
        retry = {"Retry-After": str(self.extra["retry_after"])} if "retry_after" in self.extra else {}
        return {**retry, "WWW-Authenticate": "Bearer"} if self.status == 401 else retry


class NotFound(ProductError):
    def __init__(self, what: str) -> None:
        super().__init__(
            "not_found", Sentence("There is no such {what}, or it is not yours.", what=Sentence(what)), status=404
        )


def invalid_setting(errors: Mapping[str, Sequence[str]], row: str = "") -> ProductError:
    """Return an error for the first of Django's validation errors. `errors`: messages by field.

    `row`: the name of the row if a request sets several rows.
    """
    field, messages = next(iter(errors.items()))
    place = f"{row}: {field}" if row else field
    return ProductError("invalid_setting", Sentence.verbatim(f"{place}: {messages[0]}"))


# Errors after which another provider may answer the same request: this one is down, over its limit, or refuses our key.
# If the model itself refuses, no other provider is asked.
_UNAVAILABLE = frozenset(
    {
        "provider_unreachable",
        "provider_timeout",
        "provider_overloaded",
        "rate_limited",
        "quota_exhausted",
        "bad_credentials",
        "secret_lost",
        "stream_cut",
        "malformed_stream",
    }
)


class ModelError(ProductError):
    """A model call failed.

    `retryable`: the same request may succeed later. `retry_after`: the seconds to wait that the provider named.
    `limit`: the limit that the provider named, if any: in tokens with `context_too_long`, in images with
    `too_many_images`. `parameter`: the refused parameter of the request, by the provider's name for it, if it named
    one. `message`: the provider's own message, which no page shows; it may be classified again with the request.

    With `context_too_long`: `requested` is the number of tokens that the provider counted. `is_account_limit`: the
    limit is the account's tokens per minute, not the model's window. `proven`: the numbers are known to count the
    prompt.

    `refused_tools`: the tools that the provider refused, by name or by number in the request. `max_tools`: the number
    of tools that it accepts, if it named one.
    """

    refused_tools: frozenset[str | int] = frozenset()
    max_tools: int | None = None

    def __init__(
        self,
        code: str,
        sentence: Sentence | str,
        *,
        retryable: bool,
        retry_after: float | None = None,
        limit: int | None = None,
        parameter: str = "",
    ) -> None:
        super().__init__(code, sentence, status=502)
        self.retryable = retryable
        self.retry_after = retry_after
        self.limit = limit
        self.parameter = parameter
        self.message = ""
        self.requested: int | None = None
        self.is_account_limit = False
        self.proven = True

    @property
    def unavailable(self) -> bool:
        """Return whether another model may answer instead, before the first token."""
        return self.code in _UNAVAILABLE
