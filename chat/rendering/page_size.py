"""Limit the messages of one page by the size of their texts and of their HTML.

A full page ends early, and paging continues from there. A page has at least one message, or one question with its
alternative answers.
"""

from collections.abc import Iterable, Sequence
from html import escape

from chat.models import Message
from chat.rendering.markdown import AROUND_BLOCK

MAX_CHARACTERS = 500_000  # of the messages of a page; rendering them takes seconds at most
MAX_HTML = 4_000_000  # bytes
MAX_ASIDE = 200_000  # characters of an answer's reasoning and of its tools' results that are shown
AROUND_MESSAGE = 8_000  # bytes of a message's menus, forms and icons
MENTION = 150  # bytes of the link of a mention


def count_fitting(sizes: Iterable[int], most: int) -> int:
    """Return how many of the first sizes add up to at most `most`; at least 1 if there is one."""
    count = total = 0
    for size in sizes:
        total += size
        if count and total > most:
            break
        count += 1
    return count


def characters_of(message: Message) -> int:
    """Return the characters of all parts, in texts and in the arguments of calls."""
    return sum(len(part.get("text", "")) + len(part.get("arguments", "")) for part in message.parts)


def html_size(message: Message, blocks: Sequence[Sequence[str]]) -> int:
    """Estimate the bytes of a message's HTML. `blocks` are the rendered blocks of an answer's texts."""
    size = AROUND_MESSAGE + sum(len(block.encode()) + AROUND_BLOCK for text in blocks for block in text)
    if message.role == Message.Role.USER:
        return size + len(escape(message.text).encode()) + MENTION * message.text.count("@")
    asides = "".join(part.get("text", "") for part in message.parts if part["type"] != "text")[:MAX_ASIDE]
    calls = "".join(part.get("arguments", "") for part in message.parts)
    return size + len(escape(asides + calls).encode())
