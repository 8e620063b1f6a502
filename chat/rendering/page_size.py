"""How many messages stand on one page: their texts are limited, and so is the HTML that they become.

A page that is full stops, and the existing paging goes on from there. It always has one message, or one question with
the answers that stand side by side.
"""

from collections.abc import Iterable, Sequence
from html import escape

from chat.models import Message
from chat.rendering.markdown import AROUND_BLOCK

MAX_CHARACTERS = 500_000  # of the messages of a page; rendering them takes seconds at most
MAX_HTML = 4_000_000  # bytes
MAX_ASIDE = 200_000  # characters of an answer's reasoning and of its tools' results; what is longer is cut off
AROUND_MESSAGE = 8_000  # bytes: its menus, forms and icons
MENTION = 150  # bytes of the link that a mention becomes


def count_fitting(sizes: Iterable[int], most: int) -> int:
    """Return how many of the first sizes are `most` together; at least 1, if there is one."""
    count = total = 0
    for size in sizes:
        total += size
        if count and total > most:
            break
        count += 1
    return count


def characters_of(message: Message) -> int:
    """Return how many characters all of its parts have, in texts and in the arguments of calls."""
    return sum(len(part.get("text", "")) + len(part.get("arguments", "")) for part in message.parts)


def html_size(message: Message, blocks: Sequence[Sequence[str]]) -> int:
    """Return about how many bytes of HTML it becomes; `blocks` are those of its texts, if it is an answer."""
    size = AROUND_MESSAGE + sum(len(block.encode()) + AROUND_BLOCK for text in blocks for block in text)
    if message.role == Message.Role.USER:
        return size + len(escape(message.text).encode()) + MENTION * message.text.count("@")
    asides = "".join(part.get("text", "") for part in message.parts if part["type"] != "text")[:MAX_ASIDE]
    calls = "".join(part.get("arguments", "") for part in message.parts)
    return size + len(escape(asides + calls).encode())
