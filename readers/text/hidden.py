"""Mark the parts that a document contains but does not show, such as hidden text, rows and slides.

A person who opens the document does not see them, and the model must know that: attackers hide instructions to models
there.
"""

import re
from collections import Counter

ROW = "[Hidden row]"
COLUMN = "[Hidden column]"
SHEET = "[Hidden sheet]"
SLIDE = "[Hidden slide]"
START = "[Hidden text: "
END = "]"
_BETWEEN_HIDDEN = re.compile(rf"{re.escape(END)}([ \t]*){re.escape(START)}")
HIDDEN_KEY = "hidden"  # the key of `LEFT_OUT` under which readers count these parts


def hidden_text(text: str) -> str:
    """Return a text of one paragraph, marked as hidden. The blanks around it stay outside."""
    words = text.strip()
    if not words:
        return text
    start = len(text) - len(text.lstrip())
    return f"{text[:start]}{START}{words}{END}{text[start + len(words) :]}"


def join_hidden(text: str, left_out: Counter[str]) -> str:
    """Return a text whose neighbouring hidden pieces are one. Counts the hidden pieces."""
    if START not in text:
        return text
    text = _BETWEEN_HIDDEN.sub(r"\1", text)
    left_out[HIDDEN_KEY] += text.count(START)
    return text
