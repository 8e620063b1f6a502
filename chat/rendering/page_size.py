"""Limit the messages of one page by the size of their texts and of their HTML.

A full page ends early, and paging continues from there. A page has at least one message, or one question with its
alternative answers.
"""

from collections.abc import Iterable, Sequence
from html import escape

from chat.models import Message
from chat.rendering.markdown import WRAPPER_BYTES

MAX_CHARACTERS = 500_000  # characters of the messages on one page; rendering them takes at most seconds
MAX_HTML = 4_000_000  # bytes
MAX_ASIDE = 200_000  # shown characters of an answer's reasoning and tool results
MESSAGE_OVERHEAD = 8_000  # bytes for the menus, forms and icons of a message
MENTION_BYTES = 150  # bytes per link of a mention


def count_fitting(sizes: Iterable[int], most: int) -> int:
    """Return how many of the first sizes fit into `most`. At least 1 unless `sizes` is empty."""
    count = total = 0
    for size in sizes:
        total += size
        if count and total > most:
            break
        count += 1
    return count


def count_characters(message: Message) -> int:
    """Return the number of characters in the texts and call arguments of all parts."""
    return sum(len(part.get("text", "")) + len(part.get("arguments", "")) for part in message.parts)


def html_size(message: Message, blocks: Sequence[Sequence[str]]) -> int:
    """Estimate the bytes of a message's HTML. `blocks` are the rendered blocks of an answer's texts."""
    size = MESSAGE_OVERHEAD + sum(len(block.encode()) + WRAPPER_BYTES for text in blocks for block in text)
    if message.role == Message.Role.USER:
        return size + len(escape(message.text).encode()) + MENTION_BYTES * message.text.count("@")
    asides = (part.get("text", "") for part in message.separated_parts if part["type"] != "text")
    aside_text = "".join(asides)[:MAX_ASIDE]
    calls = "".join(part.get("arguments", "") for part in message.parts)
    return size + len(escape(aside_text + calls).encode())
