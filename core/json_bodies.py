"""JSON of requests and of the frames of sockets, whose values take a bounded amount of memory.

A body of 8 MB may hold 2.6 million empty lists or objects, which take 170 to 240 MB. So the memory of the values is
estimated from the text before anything is parsed. Long texts are bounded by the size of the body itself.
"""

import json
import re
from typing import IO, Any

from rest_framework import parsers
from rest_framework.exceptions import ParseError

from core.errors import ProductError
from core.sentences import Sentence

# Bytes that CPython takes at most for each value, with its place in the list or the object around it.
OBJECT = 240
LIST = 80
SCALAR = 40
STRING = 60
MOST = 16_000_000  # bytes of all values of a request to the API: 28,000 messages of a role and a text
_WEIGHTS = {"{": OBJECT, "[": LIST, ",": SCALAR}
# The last quote is optional. Else a text that does not end would be looked through again from each of its quotes: 8 MB
# took hours, in which the whole process stood still.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def load(raw: bytes, most: int = MOST, encoding: str = "utf-8") -> Any:
    """Return the value of a JSON text. `most`: bytes that its values may take.

    Raises `too_many_values` (413), ValueError for what is not JSON, and RecursionError for what is nested too deeply.
    """
    return load_text(raw.decode(encoding), most)


def load_text(text: str, most: int = MOST) -> Any:
    """Return the value of a decoded JSON text, as `load` does."""
    if _weighs_more(text, most):
        sentence = Sentence("The request has too many lists, objects and other values. Send fewer of them at once.")
        raise ProductError("too_many_values", sentence, status=413)
    return json.loads(text, parse_constant=_refuse)


def _weighs_more(text: str, most: int) -> bool:
    """Return whether the values take more than `most` bytes."""
    if _weight(text, 0, len(text)) + STRING * text.count('"') // 2 <= most:
        return False
    # The count above takes commas and brackets within strings for values; this one skips strings.
    weight = end = 0
    for string in _STRING.finditer(text):
        weight += STRING + _weight(text, end, string.start())
        end = string.end()
        if weight > most:
            return True
    return weight + _weight(text, end, len(text)) > most


def _weight(text: str, start: int, end: int) -> int:
    return sum(weight * text.count(mark, start, end) for mark, weight in _WEIGHTS.items())


def _refuse(constant: str) -> Any:
    """Raise ValueError for NaN and Infinity, which are Python's, not JSON's."""
    raise ValueError(f"{constant} is not JSON")


class JSONParser(parsers.JSONParser):
    """Django REST framework's parser, within `MOST` bytes of values."""

    def parse(self, stream: IO[Any], media_type: Any = None, parser_context: Any = None) -> Any:
        """Return the value of the body. Raises `too_many_values` (413) and `ParseError` (400)."""
        encoding = (parser_context or {}).get("encoding") or "utf-8"
        try:
            return load(stream.read(), encoding=encoding)
        except (ValueError, LookupError) as error:  # LookupError: an encoding that Python does not know
            raise ParseError(f"JSON parse error - {error}") from error
