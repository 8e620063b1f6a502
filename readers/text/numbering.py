"""Compute the numbers that programs show before headings, paragraphs and lines of slides, such as “4.2” or “(b)”.

The text of a file does not contain these numbers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

LEVELS = 10
BULLET = "bullet"
_PLACEHOLDER = re.compile(r"%([1-9])")
_ROMAN = (
    *((1_000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl")),
    *((10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)
_SLIDE_FORMATS = {"alpha": "Letter", "roman": "Roman"}  # number formats, by the beginning of a slide's scheme
_MAX_NUMBER = 100_000  # larger numbers are written as decimals


@dataclass(frozen=True, slots=True)
class ListLevel:
    """A level of a list.

    `pattern` has `%1` for the number of the first level. `format`: a format of WordprocessingML (17.18.59).
    """

    start: int = 1
    format: str = "decimal"
    pattern: str = "%1."


@dataclass(slots=True)
class Numbering:
    """Counter for the paragraphs of one list. `levels`: its levels, from 0."""

    levels: Mapping[int, ListLevel]
    _counts: dict[int, int] = field(default_factory=dict)

    def restart(self, level: int, start: int) -> None:
        self._counts = {each: count for each, count in self._counts.items() if each < level}
        self._counts[level] = start - 1

    def next(self, level: int) -> str:
        """Return the label of the next paragraph at this level: `-` for a bullet, "" for a level without labels."""
        here = self.levels.get(level, ListLevel())
        self._counts[level] = self._counts.get(level, here.start - 1) + 1
        for deeper in range(level + 1, LEVELS):
            self._counts.pop(deeper, None)
        if here.format == BULLET:
            return "-"
        return (
            ""
            if here.format == "none"
            else _PLACEHOLDER.sub(lambda place: self._level_count(int(place[1]) - 1), here.pattern)
        )

    def _level_count(self, level: int) -> str:
        here = self.levels.get(level, ListLevel())
        return format_count(self._counts.setdefault(level, here.start), here.format)


@dataclass(slots=True)
class SlideNumbering:
    """Counter for the paragraphs in one text of a slide.

    The count of a level continues while its paragraphs have the same scheme and the same start. Deeper paragraphs
    between them do not end it. A paragraph at a higher level or without a number does.
    """

    _last: dict[int, tuple[str, int, int]] = field(default_factory=dict)

    def label(self, level: int, scheme: str, start: int) -> str:
        """Return the label of the next paragraph at this level.

        `scheme`: a scheme of DrawingML (20.1.10.61), such as `alphaLcParenR`.
        """
        here = self._last.get(level, ("", 0, 0))
        number = here[2] + 1 if here[:2] == (scheme, start) else start
        self.end(level)
        self._last[level] = scheme, start, number
        case = "upper" if "Uc" in scheme else "lower"
        form = next((f"{case}{word}" for name, word in _SLIDE_FORMATS.items() if scheme.startswith(name)), "decimal")
        text = format_count(number, form)
        return f"({text})" if "ParenBoth" in scheme else f"{text})" if "Paren" in scheme else f"{text}."

    def end(self, level: int) -> None:
        """End the counts at this level and deeper levels, for a paragraph without a number."""
        for each in [each for each in self._last if each >= level]:
            del self._last[each]


def format_count(number: int, form: str) -> str:
    """Return a number in a format of WordprocessingML."""
    if not 0 < number < _MAX_NUMBER:
        return str(number)
    match form:
        case "lowerLetter" | "upperLetter":
            text = chr(ord("a") + (number - 1) % 26) * min((number - 1) // 26 + 1, 9)
        case "lowerRoman" | "upperRoman":
            text = _roman(number)
        case "decimalZero":
            return f"{number:02}"
        case _:
            return str(number)
    return text.upper() if form.startswith("upper") else text


def _roman(number: int) -> str:
    text = ""
    for value, letters in _ROMAN:
        count, number = divmod(number, value)
        text += letters * count
    return text
