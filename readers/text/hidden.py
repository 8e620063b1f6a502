"""Mark what a document has and does not show, such as hidden text, rows and slides.

A person who opens the document does not see these parts, and a model must know that: they are the usual place for
instructions to models.
"""

import re
from collections import Counter

ROW = "[Hidden row]"
COLUMN = "[Hidden column]"
SHEET = "[Hidden sheet]"
SLIDE = "[Hidden slide]"
START = "[Hidden text: "
END = "]"
_BETWEEN = re.compile(rf"{re.escape(END)}([ \t]*){re.escape(START)}")
COUNT = "hidden"  # the key of `LEFT_OUT` under which readers count these parts


def hidden_text(text: str) -> str:
    """Return a text of one paragraph, marked as hidden. The blanks around it stay outside."""
    words = text.strip()
    if not words:
        return text
    start = len(text) - len(text.lstrip())
    return f"{text[:start]}{START}{words}{END}{text[start + len(words) :]}"


def joined(text: str, left_out: Counter[str]) -> str:
    """Return a text whose neighbouring hidden pieces are one. Counts the hidden pieces."""
    if START not in text:
        return text
    text = _BETWEEN.sub(r"\1", text)
    left_out[COUNT] += text.count(START)
    return text
