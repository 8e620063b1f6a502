"""Plan a reading of whole files, in plain values without database rows.

1. `divide_into_passages` divides the texts into numbered passages. `group_into_parts` groups them into parts, one for
   each call.
2. Each call writes notes on one part. As long as the notes do not fit into one call, `group_notes` chooses notes to
   fold into shorter ones.
3. The last call writes the answer from the remaining notes. `plan_calls` returns the upper bound of all calls.
4. At the end, `compute_coverage` returns how much was read, and the reasons for missing parts.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from chat.rendering.references import cited_numbers
from core.errors import ProductError
from core.sentences import NO_SENTENCE, Sentence
from llm.models import Model
from llm.services import MIN_TRUSTED_SAMPLES
from llm.types.model_call import Usage

PART_TOKENS = 16_000  # tokens of text in one call; models miss more in longer texts
MIN_PART_TOKENS = 640  # tokens that one call must be able to read: a passage with its mark
NOTES_TOKENS = 1_000  # tokens of the notes on one part
ANSWER_TOKENS = 4_000  # tokens of the answer
THINKING_TOKENS = 1_024  # tokens for models that reason first
UNUSED_PERCENT = 10  # percent of the window that stay unused, since counts may be wrong
MARK_TOKENS = 8  # tokens of the number above a passage
MAX_PASSAGES = 9_999  # numbers of citations have four digits (`chat.rendering.references.CITED`)
SPARE_CALLS = 4  # calls beyond one and a half times the agreed number, for parts that have to be divided


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage. It starts where the previous one ends, and ends before the character `end`.

    `heading` is the path of headings above it. `file` is the number of its file, from 0.
    """

    end: int
    tokens: int
    heading: str = ""
    file: int = 0


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of the calls of a reading, in tokens.

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
    """The most calls that a reading takes on parts and for folds, and the most tokens of all calls."""

    parts: int
    folds: int
    usage: Usage

    @property
    def calls(self) -> int:
        return self.parts + self.folds + 1


@dataclass(frozen=True, slots=True)
class PartCoverage:
    """Whether the characters [start, end) were read. If not, `code` and `why` are the reason, if it is known."""

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
    """How much of a text was read, and the gaps. `percent` is rounded down: 100 means all characters."""

    percent: int
    missing: list[Gap]


Chunks = Iterable[tuple[int, int, int, str]]


def divide_into_passages(texts: Sequence[tuple[Chunks, int]]) -> list[Passage]:
    """Return the passages of the texts, in order. Every character is in exactly one passage.

    Each text is a pair: its chunks as (start, end, tokens, heading), and its length. An overlap of two chunks belongs
    to the first one. If there are more chunks than `MAX_PASSAGES`, neighbouring chunks become one passage.
    """
    chunks_by_text = [_without_overlaps(chunks, length) for chunks, length in texts]
    per_passage = -(-sum(map(len, chunks_by_text)) // max(1, MAX_PASSAGES - len(texts))) or 1
    passages: list[Passage] = []
    offset = 0
    for file, (chunks, (_, length)) in enumerate(zip(chunks_by_text, texts, strict=True)):
        for first in range(0, len(chunks), per_passage):
            group = chunks[first : first + per_passage]
            end = group[-1][0] if first + per_passage < len(chunks) else length
            size = sum(tokens for _, tokens, _ in group) + MARK_TOKENS
            passages.append(Passage(offset + end, size, group[0][2], file))
        offset += length
    return passages


def _without_overlaps(chunks: Chunks, length: int) -> list[tuple[int, int, str]]:
    """Return the chunks as (end, tokens, heading), each from the end of the previous one."""
    trimmed: list[tuple[int, int, str]] = []
    previous_end = 0
    for start, end, tokens, heading in chunks:
        if previous_end < end <= length:
            new_characters = end - max(start, previous_end)
            trimmed.append((end, -(-tokens * new_characters // (end - start)), heading))
            previous_end = end
    return trimmed


def budget_for(model: Model, instructions: int, question: int, name: int = 0) -> Budget:
    """Divide the model's window among the sections of a call.

    `instructions` are the tokens of the longest instructions, `question` those of the question, and `name` those of a
    file's name above notes. Raises `reading_window_too_small` if too little is left for the text or for a fold.
    """
    ratio = max(1.0, model.token_ratio) if model.ratio_samples >= MIN_TRUSTED_SAMPLES else 1.0
    usable = int(model.window * (100 - UNUSED_PERCENT) / 100 / ratio)
    most_output = usable if model.max_output is None else min(usable, model.max_output)
    findings, thinking = (min(each, usable // 12, most_output) for each in (NOTES_TOKENS, THINKING_TOKENS))
    answer = min(ANSWER_TOKENS, usable // 4, most_output)
    fixed = instructions + question + thinking
    part = usable - fixed - findings
    fold = usable - fixed - 2 * findings
    if part < MIN_PART_TOKENS or fold < 2 * (2 * findings + thinking + name):
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
        part=min(part, PART_TOKENS),
        findings=findings,
        fold=fold,
        folded=2 * findings,
        notes=usable - fixed - answer,
        answer=answer,
        thinking=thinking,
        overhead=instructions + question,
        name=name,
    )


def group_into_parts(passages: Sequence[Passage], room: int) -> list[tuple[int, int]]:
    """Group the passages into parts of at most `room` tokens. Return each part as (first, last + 1).

    A part ends before a heading if at least half of the room is filled by then. No part has passages of two files. A
    passage that is longer than the room is a part of its own.
    """
    parts: list[tuple[int, int]] = []
    first = 0
    while first < len(passages):
        end = first
        size = heading_end = 0
        while end < len(passages) and (end == first or _fits_into_part(passages, end, room - size)):
            if end > first and size * 2 >= room and passages[end].heading != passages[end - 1].heading:
                heading_end = end
            size += passages[end].tokens
            end += 1
        complete = end == len(passages) or passages[end].file != passages[first].file
        end = end if complete else heading_end or end
        parts.append((first, end))
        first = end
    return parts


def _fits_into_part(passages: Sequence[Passage], at: int, room: int) -> bool:
    """Return whether the passage fits into the part of the previous passage, and is in the same file."""
    return passages[at].tokens <= room and passages[at].file == passages[at - 1].file


def group_notes(sizes: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Group neighbouring notes of at most `room` tokens to fold together. Return each group as (first, last + 1)."""
    groups: list[tuple[int, int]] = []
    first = size = 0
    for place, each in enumerate(sizes):
        if place > first and size + each > room:
            groups.append((first, place))
            first = place
            size = 0
        size += each
    return [*groups, (first, len(sizes))] if sizes else []


def plan_calls(unread: Sequence[int], notes: Sequence[int], budget: Budget) -> Plan:
    """Return the most that a reading takes.

    `unread` are the tokens of each part that still needs a call, `notes` the tokens of each note that exists.
    """
    usage = estimate_parts(unread, budget)
    input_tokens = usage.input
    output_tokens = usage.output
    sizes = [*notes, *[budget.findings + budget.thinking + budget.name] * len(unread)]
    folds = 0
    while sum(sizes) > budget.notes:
        groups = group_notes(sizes, budget.fold)
        folded = [group for group in groups if group[1] - group[0] > 1]
        input_tokens += sum(sum(sizes[first:end]) + budget.overhead for first, end in folded)
        output_tokens += len(folded) * (budget.folded + budget.thinking)
        folds += len(folded)
        sizes = [
            budget.folded + budget.thinking + budget.name if end - first > 1 else sizes[first] for first, end in groups
        ]
        if not folded:  # further folds would not make the notes fewer
            break
    usage = Usage(input_tokens + sum(sizes) + budget.overhead, output_tokens + budget.answer + budget.thinking)
    return Plan(len(unread), folds, usage)


def estimate_parts(unread: Sequence[int], budget: Budget) -> Usage:
    """Return the most tokens that the calls for these parts read and write."""
    notes = budget.findings + budget.thinking
    return Usage(sum(unread) + len(unread) * budget.overhead, len(unread) * notes)


def max_calls(agreed: int) -> int:
    """Return how many calls a reading may begin if the user agreed to `agreed` calls."""
    return agreed + agreed // 2 + SPARE_CALLS


def find_middle(passages: Sequence[int], start: int, end: int) -> int | None:
    """Return where to divide [start, end): the passage end nearest to the middle, or None if no passage ends inside."""
    inside = passages[bisect_right(passages, start) : bisect_left(passages, end)]
    return min(inside, key=lambda each: abs(2 * each - start - end), default=None)


def passage_numbers(passages: Sequence[int], start: int, end: int) -> range:
    """Return the numbers of the passages of [start, end)."""
    return range(bisect_right(passages, start) + 1, bisect_left(passages, end) + 2)


def passage_span(passages: Sequence[int], number: int) -> tuple[int, int]:
    """Return start and end of a passage, by its number."""
    return (passages[number - 2] if number > 1 else 0), passages[number - 1]


def uncited_numbers(notes: Iterable[str], text: str, passages: int) -> list[int]:
    """Return the numbers, up to `passages`, that the notes cite but the text written from them does not."""
    cited = {number for each in notes for number in cited_numbers(each)}
    return sorted(number for number in cited - cited_numbers(text) if 1 <= number <= passages)


def compute_coverage(
    parts: Sequence[PartCoverage], spans: Sequence[Sequence[int]], code: str, why: Sentence
) -> Coverage:
    """Return how much of a text was read. `parts` are in order, `spans` are the pages.

    `code` and `why` are the reason for unread parts that have no reason of their own.
    """
    total = sum(part.end - part.start for part in parts)
    read = sum(part.end - part.start for part in parts if part.read)
    return Coverage(100 * read // total if total else 0, list(_find_gaps(parts, spans, code, why)))


def _find_gaps(
    parts: Sequence[PartCoverage], spans: Sequence[Sequence[int]], code: str, why: Sentence
) -> Iterator[Gap]:
    def reason(part: PartCoverage) -> tuple[bool, str, Sentence]:
        return part.read, part.code or code, part.why or why

    for (read, own_code, own_why), group in groupby(parts, key=reason):
        if read:
            continue
        unread_parts = list(group)
        start = unread_parts[0].start
        end = unread_parts[-1].end
        yield Gap(start, end, page_at(spans, start), page_at(spans, max(start, end - 1)), own_code, own_why)


def page_at(spans: Sequence[Sequence[int]], position: int) -> int:
    """Return the page of a character, counted from 1; 0 in a text without pages."""
    return bisect_right(spans, position, key=lambda span: span[0])
