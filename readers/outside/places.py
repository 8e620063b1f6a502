"""Where the words that were recognised on the picture of a page stand on it, and which of these places a passage has.

Kept for each page in the order of the words of its text, some five bytes for each.
"""

import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

WHOLE = 10_000  # the width and the height of a page
MOST_WORDS = 20_000  # of a page
RECOGNISED = "[Recognised on a picture"  # with which the text of such a page begins, in a paragraph of its own
_WORD = re.compile(r"\S+")
_NEXT = 4  # heights of a word; what is further apart is in another column
_SHARE = 0.5  # of its height that a word has in common with its neighbour in the line


class Place(NamedTuple):
    """The edges of a word in ten-thousandths of the page as it is shown, from its left and its top."""

    left: int
    top: int
    right: int
    bottom: int


def words(text: str) -> list[str]:
    return _WORD.findall(text)


def of_passage(places: Sequence[Place], before: str, passage: str) -> list[Place]:
    """Of a passage of a page's text, which `before` stands before: the places of its words, those of a line as one.

    `places` are those of all words of the page, but for its head.
    """
    text = before + passage
    head = len(words(text.partition("\n\n")[0])) if text.startswith(RECOGNISED) else 0
    inside = bool(before and passage) and not before[-1].isspace() and not passage[0].isspace()
    first = len(words(before)) - inside
    return lines(places[max(first - head, 0) : max(len(words(text)) - head, 0)])


def lines(places: Iterable[Place]) -> list[Place]:
    """Words that follow each other in a line become one place."""
    found: list[Place] = []
    for place in places:
        if found and _beside(found[-1], place):
            last = found.pop()
            place = Place(*map(min, last[:2], place[:2]), *map(max, last[2:], place[2:]))
        found.append(place)
    return found


def _beside(one: Place, other: Place) -> bool:
    """Whatever the direction of writing is."""
    height = min(one.bottom - one.top, other.bottom - other.top)
    common = min(one.bottom, other.bottom) - max(one.top, other.top)
    between = max(one.left, other.left) - min(one.right, other.right)
    return height > 0 and common >= _SHARE * height and between <= _NEXT * height


def packed(places: Sequence[Place]) -> bytes:
    """Column by column, each number as how far it is from the one before: small numbers, which repeat."""
    kept = places[:MOST_WORDS]
    columns = (
        [place.left for place in kept],
        [place.top for place in kept],
        [place.right - place.left for place in kept],
        [place.bottom - place.top for place in kept],
    )
    steps = [after - before for column in columns for before, after in pairwise([0, *column])]
    # The low bytes and the high ones apart: the latter are nearly all the same.
    data = struct.pack(f"<{len(steps)}h", *steps)
    return zlib.compress(data[::2] + data[1::2], 9)


def unpacked(data: bytes) -> list[Place]:
    apart = zlib.decompress(data)
    half = len(apart) // 2
    joined = bytes(byte for pair in zip(apart[:half], apart[half:], strict=True) for byte in pair)
    steps = struct.unpack(f"<{half}h", joined)
    count = half // 4
    left, top, width, height = (list(accumulate(steps[at * count : (at + 1) * count])) for at in range(4))
    return [Place(x, y, x + w, y + h) for x, y, w, h in zip(left, top, width, height, strict=True)]
