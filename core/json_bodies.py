"""Parse the JSON of requests and socket frames within a limit of memory.

A body of 8 MB may hold 2.6 million empty lists or objects, which take 170 to 240 MB. So the module estimates the
memory from the text before it parses anything. The size of the body already limits long texts.
"""

import json
import re
from typing import IO, Any

from rest_framework import parsers
from rest_framework.exceptions import ParseError

from core.errors import ProductError
from core.sentences import Sentence

# Upper bounds, in bytes, of the memory that CPython takes for a value with its slot in the containing list or object.
OBJECT = 240
LIST = 80
SCALAR = 40
STRING = 60
MAX_VALUE_BYTES = 16_000_000  # bytes of all values of a request to the API: 28,000 messages with a role and a text
_WEIGHTS = {"{": OBJECT, "[": LIST, ",": SCALAR}
# The last quote is optional. Otherwise an unterminated string would be scanned again from each of its quotes: 8 MB took
# hours, during which the whole process was blocked.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def load(raw: bytes, max_bytes: int = MAX_VALUE_BYTES, encoding: str = "utf-8") -> Any:
    """Return the value of a JSON text. `max_bytes`: the memory that its values may take.

    Raises `too_many_values` (413), ValueError for invalid JSON, and RecursionError for JSON that is nested too deeply.
    """
    return load_text(raw.decode(encoding), max_bytes)


def load_text(text: str, max_bytes: int = MAX_VALUE_BYTES) -> Any:
    """Return the value of a decoded JSON text, as `load` does."""
    if _exceeds(text, max_bytes):
        sentence = Sentence("The request has too many lists, objects and other values. Send fewer of them at once.")
        raise ProductError("too_many_values", sentence, status=413)
    return json.loads(text, parse_constant=_refuse)


def _exceeds(text: str, max_bytes: int) -> bool:
    """Return whether the values of the text take more than `max_bytes` of memory."""
    if _weight(text, 0, len(text)) + STRING * text.count('"') // 2 <= max_bytes:
        return False
    # The count above includes commas and brackets within strings; this one skips strings.
    weight = end = 0
    for string in _STRING.finditer(text):
        weight += STRING + _weight(text, end, string.start())
        end = string.end()
        if weight > max_bytes:
            return True
    return weight + _weight(text, end, len(text)) > max_bytes


def _weight(text: str, start: int, end: int) -> int:
    return sum(weight * text.count(mark, start, end) for mark, weight in _WEIGHTS.items())


def _refuse(constant: str) -> Any:
    """Raise ValueError for NaN and Infinity, which Python accepts but JSON does not have."""
    raise ValueError(f"{constant} is not JSON")


class JSONParser(parsers.JSONParser):
    """Django REST framework's parser with the limit `MAX_VALUE_BYTES`."""

    def parse(self, stream: IO[Any], media_type: Any = None, parser_context: Any = None) -> Any:
        """Return the value of the body. Raises `too_many_values` (413) and `ParseError` (400)."""
        encoding = (parser_context or {}).get("encoding") or "utf-8"
        try:
            return load(stream.read(), encoding=encoding)
        except (ValueError, LookupError) as error:  # LookupError: an encoding that Python does not know
            raise ParseError(f"JSON parse error - {error}") from error
