"""Store the positions of recognised words on the picture of a page, and find the positions of a passage.

The positions are in the order of the words in the page's text. A stored position takes about five bytes.
"""

import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

PAGE_SIZE = 10_000  # width and height of a page, in the units of `WordPlace`
MAX_WORDS = 20_000  # per page
RECOGNISED = "[Recognised on a picture"  # how the text of a recognised page begins
_WORD = re.compile(r"\S+")
_MAX_GAP = 4  # times the height of a word; a word that is further away belongs to another column
_MIN_OVERLAP = 0.5  # of the smaller height; neighbours in a line overlap at least this much


class WordPlace(NamedTuple):
    """The edges of a word, from the left and the top of the shown page, in ten-thousandths of its width or height."""

    left: int
    top: int
    right: int
    bottom: int


def words(text: str) -> list[str]:
    return _WORD.findall(text)


def places_of_passage(places: Sequence[WordPlace], before: str, passage: str) -> list[WordPlace]:
    """Return the positions of a passage in a page's text, one per line. `before`: the text before the passage.

    `places`: the positions of all words of the page, except the first paragraph, which names the reader.
    """
    text = before + passage
    head = len(words(text.partition("\n\n")[0])) if text.startswith(RECOGNISED) else 0
    inside = bool(before and passage) and not before[-1].isspace() and not passage[0].isspace()
    first = len(words(before)) - inside
    return merge_into_lines(places[max(first - head, 0) : max(len(words(text)) - head, 0)])


def merge_into_lines(places: Iterable[WordPlace]) -> list[WordPlace]:
    """Merge the positions of consecutive words in a line into one position."""
    merged: list[WordPlace] = []
    for place in places:
        if merged and _are_neighbours(merged[-1], place):
            last = merged.pop()
            place = WordPlace(*map(min, last[:2], place[:2]), *map(max, last[2:], place[2:]))
        merged.append(place)
    return merged


def _are_neighbours(one: WordPlace, other: WordPlace) -> bool:
    """Return whether two words are neighbours in a line, whether the line is written from left or right."""
    height = min(one.bottom - one.top, other.bottom - other.top)
    common = min(one.bottom, other.bottom) - max(one.top, other.top)
    between = max(one.left, other.left) - min(one.right, other.right)
    return height > 0 and common >= _MIN_OVERLAP * height and between <= _MAX_GAP * height


def pack_places(places: Sequence[WordPlace]) -> bytes:
    """Return the positions as compressed bytes, column by column.

    Stores differences between numbers, which are small and often equal, so they compress well.
    """
    stored = places[:MAX_WORDS]
    columns = (
        [place.left for place in stored],
        [place.top for place in stored],
        [place.right - place.left for place in stored],
        [place.bottom - place.top for place in stored],
    )
    steps = [after - before for column in columns for before, after in pairwise([0, *column])]
    # Low bytes first, then high bytes, which are nearly all the same.
    data = struct.pack(f"<{len(steps)}h", *steps)
    return zlib.compress(data[::2] + data[1::2], 9)


def unpack_places(data: bytes) -> list[WordPlace]:
    """Return the positions from the bytes of `pack_places`."""
    halves = zlib.decompress(data)
    half = len(halves) // 2
    joined = bytes(byte for pair in zip(halves[:half], halves[half:], strict=True) for byte in pair)
    steps = struct.unpack(f"<{half}h", joined)
    count = half // 4
    left, top, width, height = (list(accumulate(steps[at * count : (at + 1) * count])) for at in range(4))
    return [WordPlace(x, y, x + w, y + h) for x, y, w, h in zip(left, top, width, height, strict=True)]
