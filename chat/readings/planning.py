"""The plan of a reading, in plain values without rows.

1. `passages_of` divides the texts into numbered passages, `parts_of` puts passages into parts of one call each.
2. Each part gives notes. While the notes do not fit into one call, `groups_of` says which to fold together.
3. The answer is written from the notes that are left. `plan_of` sums up the most that all calls take.
4. `coverage_of` says in the end how much was read, and why parts are missing.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from chat.rendering.references import cited_numbers
from core.errors import ProductError
from core.sentences import NO_SENTENCE, Sentence
from llm.models import Model
from llm.services import RATIO_TRUSTED
from llm.types.model_call import Usage

PART = 16_000  # tokens of the text in one call; in a longer text a model misses more
LEAST_PART = 640  # tokens that one call must be able to read: a passage with its mark
FINDINGS = 1_000  # tokens of the notes on one part
ANSWER = 4_000  # tokens of the answer
ROOM_TO_THINK = 1_024  # tokens for models that reason first
FREE = 10  # percent of the window, since counts may be wrong
MARK = 8  # tokens of the number above a passage
MOST_PASSAGES = 9_999  # as many numbers as citations have (`chat.rendering.references.CITED`)
SPARE = 4  # calls that are allowed beyond one and a half times the agreed number, for parts that have to be divided


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage from the end of the previous one to before the character `end`.

    `heading` is the path of headings above it. `file` is the number of its file, from 0.
    """

    end: int
    tokens: int
    heading: str = ""
    file: int = 0


@dataclass(frozen=True, slots=True)
class Budget:
    """Numbers of tokens in the calls of a reading.

    `part` is the text in one call, `findings` the notes on it. One fold takes notes of `fold` tokens and writes
    `folded` tokens. The answer of `answer` tokens is written from `notes`. `thinking` is for models that reason first.
    Every call has `overhead` for its instructions and the question. `name` is the file's name above notes.
    """

    part: int
    findings: int
    fold: int
    folded: int
    notes: int
    answer: int
    thinking: int
    overhead: int
    name: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The most that the calls of a reading take: their numbers and tokens."""

    parts: int
    folds: int
    usage: Usage

    @property
    def calls(self) -> int:
        return self.parts + self.folds + 1


@dataclass(frozen=True, slots=True)
class PartCoverage:
    """Characters [start, end), and whether they were read; if not, `code` and `why` where the reason is known."""

    start: int
    end: int
    read: bool
    code: str = ""
    why: Sentence = NO_SENTENCE


@dataclass(frozen=True, slots=True)
class Gap:
    """Characters [start, end) of a file that were not read, and why.

    The pages are 0 in a text without pages.
    """

    start: int
    end: int
    first_page: int
    last_page: int
    code: str
    why: Sentence


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a text was read: `percent` of its characters, which is 100 only for all of them, and the gaps."""

    percent: int
    missing: list[Gap]


Chunks = Iterable[tuple[int, int, int, str]]


def passages_of(texts: Sequence[tuple[Chunks, int]]) -> list[Passage]:
    """Return the passages of texts, one after the other, so that every character is in one passage.

    Each text is given by (start, end, tokens, heading) of its chunks, and its length. An overlap of two chunks belongs
    to the first. Where there are more chunks than `MOST_PASSAGES`, neighbours become one passage.
    """
    apart = [_apart(chunks, length) for chunks, length in texts]
    together = -(-sum(map(len, apart)) // max(1, MOST_PASSAGES - len(texts))) or 1
    passages: list[Passage] = []
    before = 0
    for file, (chunks, (_, length)) in enumerate(zip(apart, texts, strict=True)):
        for first in range(0, len(chunks), together):
            group = chunks[first : first + together]
            end = group[-1][0] if first + together < len(chunks) else length
            size = sum(tokens for _, tokens, _ in group) + MARK
            passages.append(Passage(before + end, size, group[0][2], file))
        before += length
    return passages


def _apart(chunks: Chunks, length: int) -> list[tuple[int, int, str]]:
    """Return the chunks as (end, tokens, heading), each from the end of the previous one."""
    apart: list[tuple[int, int, str]] = []
    before = 0
    for start, end, tokens, heading in chunks:
        if before < end <= length:
            new = end - max(start, before)
            apart.append((end, -(-tokens * new // (end - start)), heading))
            before = end
    return apart


def budget_for(model: Model, instructions: int, question: int, name: int = 0) -> Budget:
    """Divide the model's window among the parts of a call.

    `instructions` are the tokens of the longest instructions, `question` those of the question, `name` those of a name
    above notes. Raises `reading_window_too_small` where too little is left for the text or for a fold.
    """
    ratio = max(1.0, model.token_ratio) if model.ratio_samples >= RATIO_TRUSTED else 1.0
    usable = int(model.window * (100 - FREE) / 100 / ratio)
    most = usable if model.max_output is None else min(usable, model.max_output)
    findings, thinking = (min(each, usable // 12, most) for each in (FINDINGS, ROOM_TO_THINK))
    answer = min(ANSWER, usable // 4, most)
    around = instructions + question + thinking
    part = usable - around - findings
    fold = usable - around - 2 * findings
    if part < LEAST_PART or fold < 2 * (2 * findings + thinking + name):
        raise ProductError(
            "reading_window_too_small",
            Sentence(
                "The window of “{name}” leaves {part} tokens for parts of the file, besides the question and "
                "the answer. Choose a model with a larger window, or ask a shorter question.",
                name=model.name,
                part=max(part, 0),
            ),
        )
    return Budget(
        part=min(part, PART),
        findings=findings,
        fold=fold,
        folded=2 * findings,
        notes=usable - around - answer,
        answer=answer,
        thinking=thinking,
        overhead=instructions + question,
        name=name,
    )


def parts_of(passages: Sequence[Passage], room: int) -> list[tuple[int, int]]:
    """Return the parts as (first, last + 1) of their passages, with as many passages as `room` tokens take.

    A part ends before a heading where that leaves at least half of the room filled. No part has passages of two files.
    A passage that is longer than the room is a part of its own.
    """
    parts: list[tuple[int, int]] = []
    first = 0
    while first < len(passages):
        end = first
        size = best = 0
        while end < len(passages) and (end == first or _goes_on(passages, end, room - size)):
            if end > first and size * 2 >= room and passages[end].heading != passages[end - 1].heading:
                best = end
            size += passages[end].tokens
            end += 1
        whole = end == len(passages) or passages[end].file != passages[first].file
        end = end if whole else best or end
        parts.append((first, end))
        first = end
    return parts


def _goes_on(passages: Sequence[Passage], at: int, room: int) -> bool:
    """Return whether a passage fits into the part of the one before it."""
    return passages[at].tokens <= room and passages[at].file == passages[at - 1].file


def groups_of(sizes: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Return the neighbours to fold together, as (first, last + 1): as many as `room` tokens take."""
    groups: list[tuple[int, int]] = []
    first = size = 0
    for place, each in enumerate(sizes):
        if place > first and size + each > room:
            groups.append((first, place))
            first = place
            size = 0
        size += each
    return [*groups, (first, len(sizes))] if sizes else []


def plan_of(unread: Sequence[int], notes: Sequence[int], budget: Budget) -> Plan:
    """Return the most that a reading takes. `unread` are the tokens of each part to ask about, `notes` those of the
    notes that exist."""
    usage = usage_of_parts(unread, budget)
    read = usage.input
    written = usage.output
    sizes = [*notes, *[budget.findings + budget.thinking + budget.name] * len(unread)]
    folds = 0
    while sum(sizes) > budget.notes:
        groups = groups_of(sizes, budget.fold)
        folded = [group for group in groups if group[1] - group[0] > 1]
        read += sum(sum(sizes[first:end]) + budget.overhead for first, end in folded)
        written += len(folded) * (budget.folded + budget.thinking)
        folds += len(folded)
        sizes = [
            budget.folded + budget.thinking + budget.name if end - first > 1 else sizes[first] for first, end in groups
        ]
        if not folded:  # no further fold makes them fewer
            break
    usage = Usage(read + sum(sizes) + budget.overhead, written + budget.answer + budget.thinking)
    return Plan(len(unread), folds, usage)


def usage_of_parts(unread: Sequence[int], budget: Budget) -> Usage:
    """Return the most tokens that the calls for these parts read and write."""
    notes = budget.findings + budget.thinking
    return Usage(sum(unread) + len(unread) * budget.overhead, len(unread) * notes)


def most_calls(agreed: int) -> int:
    """Return the number of calls that a reading may begin for which so many were agreed to."""
    return agreed + agreed // 2 + SPARE


def middle(passages: Sequence[int], start: int, end: int) -> int | None:
    """Return where to divide [start, end): the end of a passage that is nearest to the middle; None without one."""
    inside = passages[bisect_right(passages, start) : bisect_left(passages, end)]
    return min(inside, key=lambda each: abs(2 * each - start - end), default=None)


def numbers_in(passages: Sequence[int], start: int, end: int) -> range:
    """Return the numbers of the passages of [start, end)."""
    return range(bisect_right(passages, start) + 1, bisect_left(passages, end) + 2)


def span_of(passages: Sequence[int], number: int) -> tuple[int, int]:
    """Return start and end of a passage, by its number."""
    return (passages[number - 2] if number > 1 else 0), passages[number - 1]


def left_out(notes: Iterable[str], text: str, passages: int) -> list[int]:
    """Return the numbers of passages, of so many, that the notes cite and the text made from them does not."""
    named = {number for each in notes for number in cited_numbers(each)}
    return sorted(number for number in named - cited_numbers(text) if 1 <= number <= passages)


def coverage_of(parts: Sequence[PartCoverage], spans: Sequence[Sequence[int]], code: str, why: Sentence) -> Coverage:
    """Return how much of a text was read. `parts` are in order; `code` and `why` are for those that were not begun.

    `spans` are the pages.
    """
    total = sum(part.end - part.start for part in parts)
    read = sum(part.end - part.start for part in parts if part.read)
    return Coverage(100 * read // total if total else 0, list(_missing(parts, spans, code, why)))


def _missing(parts: Sequence[PartCoverage], spans: Sequence[Sequence[int]], code: str, why: Sentence) -> Iterator[Gap]:
    def reason(part: PartCoverage) -> tuple[bool, str, Sentence]:
        return part.read, part.code or code, part.why or why

    for (read, its_code, its_why), several in groupby(parts, key=reason):
        if read:
            continue
        each = list(several)
        start = each[0].start
        end = each[-1].end
        yield Gap(start, end, page_at(spans, start), page_at(spans, max(start, end - 1)), its_code, its_why)


def page_at(spans: Sequence[Sequence[int]], position: int) -> int:
    """Return the page of a character, from 1; 0 where there are no pages."""
    return bisect_right(spans, position, key=lambda span: span[0])
