"""Recognise the refusal of a prompt that is too long, and read the limit that it names.

Three ways, in this order:

1. a known wording with a number;
2. a known code or wording without a number;
3. numbers alone. If a refusal has a number near our own count of the prompt, and a smaller one, the first is the size
   of the prompt and the second is the limit, in any wording.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

MIN_LIMIT = 256  # tokens; a smaller number in a refusal is not a window
COUNT_TOLERANCE = 0.25  # a server's count of a prompt may differ from ours by this share
MAX_SIZE = 2**31 - 1  # tokens; the largest value of the database column
MAX_SEARCHED = 4_000  # characters of a refusal that are searched

_NUMBER = r"\(?(\d[\d,]*)"


@dataclass(frozen=True, slots=True)
class Overflow:
    """The refusal of a prompt that is too long. `limit` and `requested`: tokens that the refusal names, else None.

    `is_account_limit`: the limit is the account's tokens per minute, not the model's window.
    `proven`: the numbers count the prompt. Otherwise they may belong to a field that the refusal names.
    """

    limit: int | None = None
    requested: int | None = None
    is_account_limit: bool = False
    proven: bool = True


# Wordings that name the limit as their first group.
_LIMIT_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"maximum context length (?:is|of):? {_NUMBER}",  # OpenAI, vLLM, DeepSeek, OpenRouter, Perplexity
        rf"maximum context length:? {_NUMBER}",  # Fireworks
        rf"maximum prompt length is {_NUMBER}",  # xAI
        r"(?<!\d)\d+ tokens > (\d+) maximum",  # Anthropic
        r"context limit:? \(?(?:i\.e\.? )?\d+ \+ \d+ > (\d+)",  # Anthropic, Bedrock; input and max_tokens together
        rf"available context size {_NUMBER}",  # llama.cpp
        r"with (\d+) maximum context length",  # Mistral
        rf"maximum number of (?:input )?tokens allowed {_NUMBER}",  # Google
        rf"only supports up to {_NUMBER}",  # Vertex
        rf"maximum model length of {_NUMBER}",  # vLLM
        rf"context length {_NUMBER}",  # vLLM, SGLang, Together
        rf"context (?:length|window|size) (?:of|is)(?: only)? {_NUMBER}",  # LM Studio, DS4 and others
        r"\bn_ctx\W{1,4}(\d+)",  # LM Studio, llama.cpp's bindings
        r"`inputs` tokens \+ `max_new_tokens` must be <= (\d+)",  # TGI
        r"`inputs` must have less than (\d+) tokens",  # Text Embeddings Inference
        rf"exceeds the model's maximum of {_NUMBER} tokens",  # Jina
        r"range of input length should be \[\d+, ?(\d+)\]",  # DashScope
        rf"max(?:imum)? input tokens:? {_NUMBER}",  # Bedrock
        rf"tokens in the prompt cannot exceed {_NUMBER}",  # Cohere
        rf"model token limit:? {_NUMBER}",  # Kimi
        rf"maximum allowed (?:input )?length (?:of )?{_NUMBER}",  # SGLang, Poolside
        rf"input length \d+ exceeds the maximum length {_NUMBER}",  # Volcengine
        rf"token count of \d+ exceeds the limit of {_NUMBER}",  # GitHub Copilot
        rf"input tokens exceed the configured limit of {_NUMBER}",  # OpenAI, Azure
        rf"max(?:imum)? sequence length (?:is |of )?{_NUMBER}",  # SambaNova, Cerebras
        rf"(?:prompt|input) (?:length|size|token count) \d+ exceeds (?:the )?(?:limit )?(?:of )?{_NUMBER}",
        rf"prompt length \d+ exceeds (?:the )?max(?:imum)? (?:prompt |input )?length:? {_NUMBER}",  # Databricks
    )
)
# Codes and wordings without a number, or with a number that is not a limit.
_OVERFLOW_WORDS = re.compile(
    r"context_length_exceeded|context_window_exceeded|contextwindowexceeded|exceed_context_size|request_too_large"
    r"|prompt (?:is )?too long|(?:in|the )?prompt exceeds max length|input is too long|input length too long"
    r"|exceeds? (?:the |this model'?s? |your )?(?:available |max(?:imum)? (?:allowed )?|model'?s? )*"
    r"(?:context|prompt length|input length|sequence length)"
    r"|context (?:size|length|window)(?: limit)? (?:has been |was |is )?exceed(?:ed|s)|exceed context limit"
    r"|input (?:\(\d+ tokens\) )?is too large to process"  # llama.cpp, for embedding and reranking
    r"|(?:greater|longer) than the (?:model'?s )?context length"  # LM Studio, Together
    r"|cannot truncate prompt with n_keep"  # LM Studio
    r"|reduce the length of (?:the |your )?(?:messages|prompt|input)"  # Groq, Cerebras
    r"|too many (?:input )?tokens in (?:the )?(?:prompt|request)|too many tokens: (?:size limit|total number)"  # Cohere
    r"|input token count .{0,40}exceeds the maximum|too many input tokens"  # Google, Bedrock
    r"|exceeded model token limit"  # Kimi
    r"|(?:exceeds?|over) (?:the |this model'?s? )?(?:max(?:imum)? )?(?:message |input |prompt |model )?token"
    r"(?:s\b(?! per)| (?:limit|count)\b(?! (?:per|of (?:the |your )?(?:account|plan|subscription))))"
    r"|exceeds? max(?:imum)? (?:message )?tokens"  # Volcengine, Moonshot
    r"|(?:input|prompt|token count) (?:tokens? )?(?:is |are )?(?:too (?:long|large)|exceeds? the (?:upper )?limit)"
    r"|input or output tokens must be reduced"  # Vertex, OpenAI
    r"|the max input characters is"  # Baidu
    r"|'(?:input|messages\[\d+\]\.content(?:\[\d+\]\.text)?)': string too long"  # OpenAI
    r"|token ?(?:数|数量|总数)?超(?:过|出|限)"  # iFlytek
    r"|range of input length should be"  # DashScope
    r"|prompt ?超长|(?:输入|上下文|prompt).{0,6}长度.{0,6}超"  # GLM
    r"|超(?:出|过).{0,6}(?:最大|上下文).{0,4}长度",
    re.IGNORECASE,
)
_OVERFLOW_CODES = re.compile(r"(?:^|\s)1261(?:\s|$)")  # GLM
_ACCOUNT_WORDS = re.compile(
    r"\btokens?[ -](?:per|an?)[ -](?:min|minute|hour|day)\b|\btokens?/min|\bTP[MHD]\b|\bper-minute\b", re.IGNORECASE
)
_ACCOUNT_LIMIT_AND_REQUEST = re.compile(
    rf"\blimit:? {_NUMBER}.{{0,80}}?\b(?:requested|request):? (?:about )?{_NUMBER}", re.IGNORECASE
)
# A limit per minute or day without the requested number: Anthropic, GitHub Models.
_ACCOUNT_LIMIT = re.compile(
    rf"\blimit(?: of|:)? {_NUMBER} (?:\w{{1,20}} ){{0,2}}tokens?[ -]per|per-minute rate limit {_NUMBER} tokens"
    rf"|tokens[ -]per[ -](?:minute|day) limit(?: of|:)? {_NUMBER}",
    re.IGNORECASE,
)

# Numbers in a refusal that do not count tokens: times, numbers with other units, parts of names.
_DATES = re.compile(r"\d{4}-\d\d-\d\d(?:[T ][\d:.]+(?:Z|[+-]\d\d:?\d\d)?)?|\b\d{1,2}:\d\d(?::\d\d)?\b")
_QUANTITY = re.compile(r"(?<![\w.\-#/])\d{1,3}(?:,\d{3})+(?![\w.\-/]*\d)|(?<![\w.,\-#/])\d+(?![\w\-/]|[.,:]\d)")
_OTHER_UNIT = re.compile(
    r"\W{0,2}(?:ms|s|sec|seconds?|minutes?|hours?|days?|px|pixels?|bytes?|[kmg]i?b|requests?|images?|characters?|chars?"
    r"|tools?|functions?|messages?|items?|files?|pages?|dollars?|usd|%)\b",
    re.IGNORECASE,
)
# A refusal about the answer is no overflow, unless it also mentions the prompt. A refusal about another subject is no
# overflow, unless it mentions tokens.
_ANSWER_WORDS = re.compile(
    r"max_tokens|max_completion_tokens|max_output_tokens|max_new_tokens|num_predict|output tokens|completion tokens"
    r"|budget_tokens|thinking budget",
    re.IGNORECASE,
)
_PROMPT_WORDS = re.compile(
    r"\bprompt|\binput|context|\bn_ctx|\bn_keep|sequence|history|\bconversation|messages", re.IGNORECASE
)
_OTHER_SUBJECTS = re.compile(
    r"temperature|top_p|top_k|penalty|\bseed\b|logit_bias|n_probs|logprobs"
    r"|\bimages?\b|pixel|dimension|resolution|\bbytes?\b|megabytes?|\bcharacters?\b|string_above"
    r"|requests per|\bRPM\b|\bRPD\b|expire|deprecat|retire|version|\bdate\b|timestamp|\bport\b|tool_call|\btools?\b"
    r"|\bschema|\bdescription|\bmetadata|\buser[_ ]id\b|\bpages?\b|\bbatch|\bstop[_ ]sequence|\bduration\b",
    re.IGNORECASE,
)
# Words about the form of the request. Such a refusal is never an overflow.
_SYNTAX_WORDS = re.compile(
    r"\bjson\b|unexpected (?:token|character|end)|unterminated|\bline \d+|\bcolumn \d+|at (?:char|position)"
    r"|(?:array|string) too long",
    re.IGNORECASE,
)
# Words about a field of the request. The numbers then prove nothing, unless the refusal mentions prompt or tokens.
_FIELD_WORDS = re.compile(
    r"must be|invalid|\b(?:parameter|field|value|argument|property|id|name|too (?:long|many))\b", re.I
)
_TOKEN_WORDS = re.compile(r"\btokens?\b|context|\bprompt\b|\bn_ctx", re.IGNORECASE)
_BEFORE_LIMIT = re.compile(
    r"(?:limit|max(?:imum)?|at most|up to|only|allow(?:s|ed)?|exceed(?:s|ed)?|greater than|larger than|longer than"
    r"|more than|window|capacity|context(?: size| length)?|n_ctx|>=?|<=?)\W{0,3}(?:\w+\W{1,3}){0,3}$",
    re.IGNORECASE,
)
_AFTER_LIMIT = re.compile(
    r"^\W{0,2}(?:tokens?\W{0,2})?(?:\(?(?:max(?:imum)?|limit|allowed|at most)|are allowed|is the (?:limit|max))",
    re.IGNORECASE,
)


def overflow_by_wording(
    names: str, message: str, *, n_ctx: int | None = None, status: int | None = None
) -> Overflow | None:
    """Return the overflow of a refusal in a known wording, None for other refusals and wordings.

    `names`: the machine-readable code and type. `n_ctx`: the window as a member of the error (llama.cpp).
    """
    message = message[:MAX_SEARCHED]
    if (account := _account_overflow(message)) is not None:
        return account
    if _ACCOUNT_WORDS.search(message) and status != 413:
        return None
    for pattern in _LIMIT_PATTERNS:
        if match := pattern.search(message):
            return Overflow(n_ctx or _to_number(match[1]))
    is_about_answer = _ANSWER_WORDS.search(message) and not _PROMPT_WORDS.search(message)
    if (
        _OVERFLOW_WORDS.search(names)
        or _OVERFLOW_CODES.search(names)
        or (_OVERFLOW_WORDS.search(message) and not is_about_answer)
    ):
        return Overflow(n_ctx)
    # Status 413 alone (Cerebras, nginx) means a prompt that is too long.
    return Overflow(n_ctx) if status == 413 else None


def _account_overflow(message: str) -> Overflow | None:
    """Return the overflow of a single request that exceeds the tokens per minute. None if waiting helps."""
    if _ACCOUNT_WORDS.search(message) and (match := _ACCOUNT_LIMIT_AND_REQUEST.search(message)):
        limit = _to_number(match[1])
        requested = _to_number(match[2])
        if limit is not None and requested is not None and requested > limit:
            return Overflow(limit, requested, is_account_limit=True)
    return None


def overflow_by_numbers(message: str, counted: int) -> Overflow | None:
    """Return the overflow that the numbers of a refusal indicate. `counted`: our count of the prompt, in tokens.

    One number must be near our count, and another one must be smaller. The words around a number show whether it is the
    limit. If they mark no number or several, the overflow has no limit.
    """
    message = message[:MAX_SEARCHED]
    if _ACCOUNT_WORDS.search(message):
        return _account_overflow_by_count(message, counted)
    if _SYNTAX_WORDS.search(message):
        return None
    if _ANSWER_WORDS.search(message) and not _PROMPT_WORDS.search(message):
        return None
    if _OTHER_SUBJECTS.search(message) and not _TOKEN_WORDS.search(message):
        return None
    text = _DATES.sub(lambda date: " " * len(date[0]), message)
    numbers = list(_token_numbers(text))
    near_counts = [value for value, _ in numbers if abs(value - counted) <= COUNT_TOLERANCE * counted]
    if not near_counts:
        return None
    requested = max(near_counts)
    smaller = {value: at_limit for value, at_limit in sorted(numbers) if MIN_LIMIT <= value < requested}
    if not smaller:
        return None
    stated_limits = [value for value, at_limit in smaller.items() if at_limit]
    candidates = stated_limits or list(smaller)
    limit = candidates[0] if len(candidates) == 1 and stated_limits else None
    is_about_prompt = _TOKEN_WORDS.search(message) or _PROMPT_WORDS.search(message)
    return Overflow(limit, requested, proven=bool(is_about_prompt or not _FIELD_WORDS.search(message)))


def _account_overflow_by_count(message: str, counted: int) -> Overflow | None:
    """Return the overflow of a request that exceeds the tokens per minute by our count. None if waiting helps."""
    match = _ACCOUNT_LIMIT.search(message)
    limit = _to_number(next(number for number in match.groups() if number)) if match else None
    return Overflow(limit, counted, is_account_limit=True) if limit is not None and limit < counted else None


def _token_numbers(text: str) -> Iterator[tuple[int, bool]]:
    """Yield each number that may count tokens, and whether the words around it call it a limit."""
    for match in _QUANTITY.finditer(text):
        value = _to_number(match[0])
        if value is None or _OTHER_UNIT.match(text, match.end()):
            continue
        before = text[max(0, match.start() - 60) : match.start()]
        after = text[match.end() : match.end() + 30]
        yield value, bool(_BEFORE_LIMIT.search(before) or _AFTER_LIMIT.search(after))


def _to_number(digits: str) -> int | None:
    value = int(digits.replace(",", "")[:12])
    return value if 0 < value <= MAX_SIZE else None
