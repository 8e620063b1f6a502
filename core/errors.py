"""Errors with a code and a sentence, mapped once per interface (API, page, socket).

Every error a person can cause or meet derives from `ProductError`. `detail` is shown to people as it is: one or two
sentences that say what to do, without secrets or internals.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from core.sentences import Sentence

LONGEST_DETAIL = 2_000  # characters; values of the request stand in it, and a request may have megabytes


class ProductError(Exception):
    """`code` is stable and machine-readable, `status` the HTTP status, `extra` more JSON members for programs.

    `sentence` is for people, who read it in their language; `detail` is its English text, for models, logs and
    commands. A literal is enough where the sentence has no values.
    """

    def __init__(self, code: str, sentence: Sentence | str, *, status: int = 400, **extra: Any) -> None:
        self.sentence = Sentence.of(sentence).shortened(LONGEST_DETAIL)
        self.detail = self.sentence.english
        super().__init__(f"{code}: {self.detail}")
        self.code = code
        self.status = status
        self.extra = extra

    @property
    def headers(self) -> dict[str, str]:
        """Of an answer over HTTP: an error that passes says in `retry_after` after how many seconds to come again."""
        return {"Retry-After": str(self.extra["retry_after"])} if "retry_after" in self.extra else {}


class NotFound(ProductError):
    def __init__(self, what: str) -> None:
        super().__init__(
            "not_found", Sentence("There is no such {what}, or it is not yours.", what=Sentence(what)), status=404
        )


def invalid_setting(errors: Mapping[str, Sequence[str]], row: str = "") -> ProductError:
    """The first of what Django found wrong with a row, by field; `row` names it where several are set at once."""
    field, found = next(iter(errors.items()))
    place = f"{row}: {field}" if row else field
    return ProductError("invalid_setting", Sentence.verbatim(f"{place}: {found[0]}"))


# The provider is down, over its limit, or does not let us in: the same request may be answered elsewhere. What a model
# itself refuses is not here.
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

    `retryable`: the same request may succeed later. `retry_after`: seconds the provider asked to wait, if it did.
    `limit`: the limit that the provider named, if it did: in tokens with `context_too_long`, in images with
    `too_many_images`. `parameter`: the one of the request that it refused, by the provider's name for it, if it named
    one. `message`: the provider's own words, which nobody is shown; they may be judged again with what was sent.

    Of `context_too_long`: `requested` are the tokens that the provider says it was sent; `of_account` that the limit is
    one of tokens a minute, not of the model; `proven` that its numbers count the prompt, not something else.

    `refused_tools`: the provider's words about tools that it refused, names and their numbers in the request;
    `most_tools`: the number of tools that it takes, if it named one.
    """

    refused_tools: frozenset[str | int] = frozenset()
    most_tools: int | None = None

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
        self.of_account = False
        self.proven = True

    @property
    def unavailable(self) -> bool:
        """Whether, before the first token, another model may be asked instead."""
        return self.code in _UNAVAILABLE
