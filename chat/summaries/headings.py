"""The sections of a written summary, found by what their headings mean rather than by how they are written.

Small models number the headings, put bullets, emoji or emphasis around them, or translate them:

1. A line is a heading when it begins with the name of a section, whatever decorates it: `## 1. Earlier`, `- **Now**:`.
2. Headings of one kind, as many as sections were asked for, are those sections in their order, under any names.
3. Text before the first heading belongs to no section.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from chat.context.summary import SECTION_SHARES

LONGEST_HEADING = 80  # characters of a line that may be a heading under another name
# Blanks, bullets, numbers and emoji in front of a heading's words; marks of emphasis are looked at apart.
_DECORATION = re.compile(r"(?:[^\w#*\[]|[\d_]|[*](?![*]))*+")
_MARK = re.compile(r"#{1,6}+|[*]{2,3}+|__|\[")
_NAME = re.compile("|".join(map(re.escape, SECTION_SHARES)), re.IGNORECASE)
_REMARK = re.compile(r"[ \t]*+\([^()\n]{1,60}\)")  # behind a name: “Today (Hôm nay)”
_CLOSED = re.compile(r"[ \t]*+(?:[*_\]:：]|$)")
_CLOSERS = re.compile(r"[\s*_\]:：]*+")
_NUMBER = re.compile(r"\s*+(?:[-*•][ \t]++)?\d{1,2}[.)]\s")


@dataclass(frozen=True, slots=True)
class Heading:
    """A line that may begin a section.

    `kind`: how it is marked; headings of one level have the same. `name`: the section's, empty for any other words.
    `text`: what stands behind the heading in its line.
    """

    line: int
    kind: str
    name: str
    text: str


def sections_of(text: str, asked: Collection[str]) -> list[dict[str, str]]:
    """Return the sections that have text, in their order; none where the text has no heading of theirs.

    `asked`: the names of the sections that the writer was asked for.
    """
    lines = text.splitlines()
    headings = list(_headings(lines))
    found: dict[str, str] = {}
    for heading, body in _bodies(lines, _in_order(headings, list(asked)) or [each for each in headings if each.name]):
        found[heading.name] = "\n".join(each for each in (found.get(heading.name, ""), body) if each)
    return [{"name": name, "text": found[name]} for name in SECTION_SHARES if found.get(name)]


def has_heading(text: str) -> bool:
    """Return whether a line begins with the name of a section, as a heading does."""
    return any(heading.name for heading in _headings(text.splitlines()))


def _headings(lines: Sequence[str]) -> Iterator[Heading]:
    for number, line in enumerate(lines):
        heading = _named(number, line) or _unnamed(number, line)
        if heading is not None:
            yield heading


def _named(number: int, line: str) -> Heading | None:
    mark, start = _decorated(line)
    name = _NAME.match(line, start)
    if name is None:
        return None
    end = name.end()
    remark = _REMARK.match(line, end)
    if remark is not None:
        end = remark.end()
    # A sentence may begin with the word: “Now we know”. Behind the marks of a heading any words may follow.
    if not (_CLOSED.match(line, end) or (mark.startswith("#") and not line[end : end + 1].isalnum())):
        return None
    closers = _CLOSERS.match(line, end)
    rest = line[closers.end() if closers else end :]
    section = next(each for each in SECTION_SHARES if each.lower() == name[0].lower())
    return Heading(number, mark or _plain_kind(line), section, rest)


def _unnamed(number: int, line: str) -> Heading | None:
    """Return a line that is a heading by its marks alone."""
    stripped = line.strip()
    mark, start = _decorated(line)
    words = line[start:].strip()
    if not words or len(stripped) > LONGEST_HEADING:
        return None
    if mark.startswith("#"):
        return Heading(number, mark, "", "")
    bare = words.rstrip(":： ")
    if mark in ("**", "***", "__") and bare.endswith(mark) and mark not in bare[: -len(mark)]:
        return Heading(number, mark, "", "")
    if not mark and (words.endswith((":", "：")) or _NUMBER.match(line)):
        return Heading(number, _plain_kind(line), "", "")
    return None


def _decorated(line: str) -> tuple[str, int]:
    """Return the mark of emphasis or heading in front of a line's words, and where the words begin."""
    start, first = 0, ""
    while True:
        start = _end(_DECORATION, line, start)
        mark = _MARK.match(line, start)
        if mark is None:
            return first, start
        first, start = first or mark[0], mark.end()


def _end(pattern: re.Pattern[str], line: str, start: int) -> int:
    match = pattern.match(line, start)
    return match.end() if match else start


def _plain_kind(line: str) -> str:
    return "1." if _NUMBER.match(line) else ":"


def _in_order(headings: Sequence[Heading], asked: Sequence[str]) -> list[Heading]:
    """Return the headings of a kind that are as many as the sections asked for, under the names of these."""
    for kind in dict.fromkeys(heading.kind for heading in headings):
        alike = [heading for heading in headings if heading.kind == kind]
        if len(alike) == len(asked) > 1 and all(
            each.name in ("", name) for each, name in zip(alike, asked, strict=True)
        ):
            return [Heading(each.line, kind, name, each.text) for each, name in zip(alike, asked, strict=True)]
    return []


def _bodies(lines: Sequence[str], headings: Sequence[Heading]) -> Iterator[tuple[Heading, str]]:
    for heading, following in zip_longest(headings, headings[1:]):
        if heading is None:
            continue
        end = following.line if following is not None else len(lines)
        body = "\n".join([heading.text, *lines[heading.line + 1 : end]]).strip()
        yield heading, body.removesuffix("]").strip()
