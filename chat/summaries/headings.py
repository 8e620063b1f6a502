"""Find the sections of a written summary by the words of their headings, whatever their markup.

Small models number the headings, put bullets, emoji or emphasis around them, or translate them:

1. A line is a heading when it begins with the name of a section, in any markup: `## 1. Earlier`, `- **Now**:`.
2. If one kind of heading occurs as often as there are requested sections, these are the sections in order, whatever
   their names.
3. Text before the first heading belongs to no section.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypedDict

from chat.context.summary import SECTION_SHARES

MAX_HEADING_LENGTH = 80  # characters of a line that may be a heading under another name
# Blanks, bullets, numbers and emoji in front of a heading's words. Emphasis marks are matched separately.
_DECORATION = re.compile(r"(?:[^\w#*\[]|[\d_]|[*](?![*]))*+")
_MARK = re.compile(r"#{1,6}+|[*]{2,3}+|__|\[")
_NAME = re.compile("|".join(map(re.escape, SECTION_SHARES)), re.IGNORECASE)
_REMARK = re.compile(r"[ \t]*+\([^()\n]{1,60}\)")  # after a name: “Today (Hôm nay)”
_CLOSED = re.compile(r"[ \t]*+(?:[*_\]:：]|$)")
_CLOSERS = re.compile(r"[\s*_\]:：]*+")
_NUMBER = re.compile(r"\s*+(?:[-*•][ \t]++)?\d{1,2}[.)]\s")


class SummarySection(TypedDict):
    """A stored section of a summary. `name` is a key of `SECTION_SHARES`."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class SummaryHeading:
    """A line that may begin a section.

    `kind` is its markup, which is the same for headings of one level. `name` is the name of a section, or empty for
    other words. `text` is the rest of the line after the heading.
    """

    line: int
    kind: str
    name: str
    text: str


def parse_sections(text: str, requested: Collection[str]) -> list[SummarySection]:
    """Return the sections that have text, in their order; none if the text has none of their headings.

    `requested` are the names of the sections that the prompt asks for.
    """
    lines = text.splitlines()
    headings = list(_headings(lines))
    section_headings = _headings_in_order(headings, list(requested)) or [each for each in headings if each.name]
    texts: dict[str, str] = {}
    for heading, body in _bodies(lines, section_headings):
        texts[heading.name] = "\n".join(each for each in (texts.get(heading.name, ""), body) if each)
    return [{"name": name, "text": texts[name]} for name in SECTION_SHARES if texts.get(name)]


def has_heading(text: str) -> bool:
    """Return whether the text has a heading with the name of a section."""
    return any(heading.name for heading in _headings(text.splitlines()))


def _headings(lines: Sequence[str]) -> Iterator[SummaryHeading]:
    for number, line in enumerate(lines):
        heading = _named_heading(number, line) or _unnamed_heading(number, line)
        if heading is not None:
            yield heading


def _named_heading(number: int, line: str) -> SummaryHeading | None:
    mark, start = _decorated(line)
    name = _NAME.match(line, start)
    if name is None:
        return None
    end = name.end()
    remark = _REMARK.match(line, end)
    if remark is not None:
        end = remark.end()
    # A sentence may begin with a name: “Now we know”. Only after the mark `#` may other words follow the name.
    if not (_CLOSED.match(line, end) or (mark.startswith("#") and not line[end : end + 1].isalnum())):
        return None
    closers = _CLOSERS.match(line, end)
    rest = line[closers.end() if closers else end :]
    section = next(each for each in SECTION_SHARES if each.lower() == name[0].lower())
    return SummaryHeading(number, mark or _plain_kind(line), section, rest)


def _unnamed_heading(number: int, line: str) -> SummaryHeading | None:
    """Return the heading in a line that only its markup makes a heading."""
    stripped = line.strip()
    mark, start = _decorated(line)
    words = line[start:].strip()
    if not words or len(stripped) > MAX_HEADING_LENGTH:
        return None
    if mark.startswith("#"):
        return SummaryHeading(number, mark, "", "")
    bare = words.rstrip(":： ")
    if mark in ("**", "***", "__") and bare.endswith(mark) and mark not in bare[: -len(mark)]:
        return SummaryHeading(number, mark, "", "")
    if not mark and (words.endswith((":", "：")) or _NUMBER.match(line)):
        return SummaryHeading(number, _plain_kind(line), "", "")
    return None


def _decorated(line: str) -> tuple[str, int]:
    """Return the emphasis or heading mark in front of a line's words, and the index where the words begin."""
    start = 0
    first = ""
    while True:
        start = _end(_DECORATION, line, start)
        mark = _MARK.match(line, start)
        if mark is None:
            return first, start
        first = first or mark[0]
        start = mark.end()


def _end(pattern: re.Pattern[str], line: str, start: int) -> int:
    match = pattern.match(line, start)
    return match.end() if match else start


def _plain_kind(line: str) -> str:
    return "1." if _NUMBER.match(line) else ":"


def _headings_in_order(headings: Sequence[SummaryHeading], requested: Sequence[str]) -> list[SummaryHeading]:
    """Return the headings of the first kind that occurs once for each requested section, with the sections' names."""
    for kind in dict.fromkeys(heading.kind for heading in headings):
        matching = [heading for heading in headings if heading.kind == kind]
        if len(matching) == len(requested) > 1 and all(
            each.name in ("", name) for each, name in zip(matching, requested, strict=True)
        ):
            return [
                SummaryHeading(each.line, kind, name, each.text) for each, name in zip(matching, requested, strict=True)
            ]
    return []


def _bodies(lines: Sequence[str], headings: Sequence[SummaryHeading]) -> Iterator[tuple[SummaryHeading, str]]:
    for heading, following in zip_longest(headings, headings[1:]):
        if heading is None:
            continue
        end = following.line if following is not None else len(lines)
        body = "\n".join([heading.text, *lines[heading.line + 1 : end]]).strip()
        yield heading, body.removesuffix("]").strip()
