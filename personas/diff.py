"""What changed between two texts, side by side: line by line, and word by word inside a changed line."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

MOST_WORDS = 4_000  # of a line; above that comparing words takes seconds, and the line counts as changed as a whole
WORDS = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Span:
    text: str
    changed: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the old text beside its line of the new one; None where the other has a line more."""

    old: list[Span] | None
    new: list[Span] | None

    @property
    def kind(self) -> str:
        """same, changed, removed or added"""
        if self.old is None:
            return "added"
        if self.new is None:
            return "removed"
        return "changed" if any(span.changed for span in (*self.old, *self.new)) else "same"


def compare(old: str, new: str) -> list[Row]:
    before, after = old.splitlines(), new.splitlines()
    return [row for block in _blocks(before, after) for row in _rows(*block)]


def _blocks(before: list[str], after: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    for _, low, high, new_low, new_high in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        yield before[low:high], after[new_low:new_high]


def _rows(before: list[str], after: list[str]) -> Iterator[Row]:
    for old, new in zip_longest(before, after):
        if old is None:
            yield Row(None, [Span(new, True)])
        elif new is None:
            yield Row([Span(old, True)], None)
        else:
            yield Row(*_spans(old, new))


def _spans(old: str, new: str) -> tuple[list[Span], list[Span]]:
    before, after = WORDS.findall(old), WORDS.findall(new)
    if max(len(before), len(after)) > MOST_WORDS:
        return [Span(old, old != new)], [Span(new, old != new)]
    left, right = [], []
    for tag, low, high, new_low, new_high in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        left.append(Span("".join(before[low:high]), tag != "equal"))
        right.append(Span("".join(after[new_low:new_high]), tag != "equal"))
    return [span for span in left if span.text], [span for span in right if span.text]
