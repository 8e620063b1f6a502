"""Texts cut to a number of tokens, always on token boundaries and with the marker counted (context.md, section 3)."""

from chat.context.types import Tokenizer

SYSTEM_MARKER = "[System prompt truncated to fit context]"


def cut_end(text: str, limit: int, tokenizer: Tokenizer) -> str | None:
    """The beginning of a system prompt and the marker, at most `limit` tokens; None if not even the marker fits.

    A text that fits (its given count was larger than the real one) stays as it is.
    """
    if tokenizer.count(text) <= limit:
        return text
    kept = limit - tokenizer.count(SYSTEM_MARKER)
    while kept >= 0:
        shortened = f"{tokenizer.head(text, kept)}\n{SYSTEM_MARKER}"
        # Texts put together may count a little more than their parts.
        excess = tokenizer.count(shortened) - limit
        if excess <= 0:
            return shortened
        kept -= excess
    return None


def cut_middle(text: str, limit: int, least: int, tokenizer: Tokenizer) -> str:
    """Head and tail of a tool result around a marker that says how much was left out: at most `limit` tokens.

    Not every count can be met, as a character may be several tokens. The closest from below is taken unless it is under
    `least`; then the closest from above.
    """
    total = tokenizer.count(text)
    if total <= limit:
        return text
    kept = limit - tokenizer.count(_marker(total))
    tried: dict[int, str] = {}
    below: dict[int, str] = {}
    above: dict[int, str] = {}
    while kept not in tried:
        tried[kept] = candidate = _around(text, kept, total, tokenizer)
        tokens = tokenizer.count(candidate)
        (below if tokens <= limit else above)[tokens] = candidate
        kept = max(kept + limit - tokens, 0)
    closest = max(below, default=0)
    return below[closest] if closest >= least or not above else above[min(above)]


def _around(text: str, kept: int, total: int, tokenizer: Tokenizer) -> str:
    tail = kept // 2
    return f"{tokenizer.head(text, kept - tail)}\n{_marker(total - kept)}\n{tokenizer.tail(text, tail)}"


def _marker(tokens: int) -> str:
    return f"[… {tokens} tokens left out …]"
