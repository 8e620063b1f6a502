"""How texts are read part by part, in plain values: its passages and parts, the folds, the most that all of it takes,
and what was read of it in the end."""

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

PART = 16_000  # tokens of the text in one call; of more at once a model misses more
LEAST_PART = 640  # tokens that one call must be able to read: a passage with its mark
FINDINGS, ANSWER, ROOM_TO_THINK = 1_000, 4_000, 1_024  # tokens: of one part's notes, of the answer, and to reason first
FREE = 10  # percent of the window, since counts may be off
MARK = 8  # tokens of the number above a passage
MOST_PASSAGES = 9_999  # as many numbers as citations have (`chat.rendering.references.CITED`)
SPARE = 4  # calls beside half of those agreed to, for parts that have to be divided


@dataclass(frozen=True, slots=True)
class Passage:
    """Ends before the character `end`, and begins where the one before it ends. `heading`: the path that it stands
    below; `file`: which of the files it is of, from 0."""

    end: int
    tokens: int
    heading: str = ""
    file: int = 0


@dataclass(frozen=True, slots=True)
class Budget:
    """Tokens: of the text in one call, of the notes on it, of the notes that one fold takes and what it makes of them,
    of the notes that the answer is written from, and of the answer. `thinking` is for models that reason first;
    `beside` is what every call has beside those, and `name` what stands above notes to say which file they are on."""

    part: int
    findings: int
    fold: int
    folded: int
    notes: int
    answer: int
    thinking: int
    beside: int
    name: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The most that a reading takes. `usage`: tokens read and written."""

    parts: int
    folds: int
    usage: Usage

    @property
    def calls(self) -> int:
        return self.parts + self.folds + 1


@dataclass(frozen=True, slots=True)
class Part:
    """Characters [start, end), whether they were read, and the code and the sentence of why not where that is known."""

    start: int
    end: int
    read: bool
    code: str = ""
    why: Sentence = NO_SENTENCE


@dataclass(frozen=True, slots=True)
class Missing:
    """Characters [start, end) of a file that were not read, the first and the last page of them (0 where there are
    none), and the code and the sentence of why."""

    start: int
    end: int
    first_page: int
    last_page: int
    code: str
    why: Sentence


@dataclass(frozen=True, slots=True)
class Coverage:
    """`percent` of the text's characters that were read; 100 only if that is all of them."""

    percent: int
    missing: list[Missing]


Chunks = Iterable[tuple[int, int, int, str]]


def passages_of(texts: Sequence[tuple[Chunks, int]]) -> list[Passage]:
    """Of texts that stand one behind the other, each as (start, end, tokens, heading) of its chunks and its length:
    neighbours that overlap are told apart, and every character is in one of them. So many chunks that there are no
    numbers for them are put together."""
    apart = [_apart(chunks, length) for chunks, length in texts]
    together = -(-sum(map(len, apart)) // max(1, MOST_PASSAGES - len(texts))) or 1
    found, before = list[Passage](), 0
    for file, (chunks, (_, length)) in enumerate(zip(apart, texts, strict=True)):
        for first in range(0, len(chunks), together):
            group = chunks[first : first + together]
            end = group[-1][0] if first + together < len(chunks) else length
            size = sum(tokens for _, tokens, _ in group) + MARK
            found.append(Passage(before + end, size, group[0][2], file))
        before += length
    return found


def _apart(chunks: Chunks, length: int) -> list[tuple[int, int, str]]:
    """As (end, tokens, heading), each from where the one before it ends."""
    found, before = list[tuple[int, int, str]](), 0
    for start, end, tokens, heading in chunks:
        if before < end <= length:
            new = end - max(start, before)
            found.append((end, -(-tokens * new // (end - start)), heading))
            before = end
    return found


def budget_for(model: Model, beside: int, question: int, name: int = 0) -> Budget:
    """`beside` are the tokens of the longest instructions, `question` those of the question, `name` those of a name
    above notes.

    Raises `reading_window_too_small` where no window's part of the text would be left.
    """
    ratio = max(1.0, model.token_ratio) if model.ratio_samples >= RATIO_TRUSTED else 1.0
    usable = int(model.window * (100 - FREE) / 100 / ratio)
    most = usable if model.max_output is None else min(usable, model.max_output)
    findings, thinking = (min(each, usable // 12, most) for each in (FINDINGS, ROOM_TO_THINK))
    answer, around = min(ANSWER, usable // 4, most), beside + question + thinking
    part, fold = usable - around - findings, usable - around - 2 * findings
    if part < LEAST_PART or fold < 2 * (2 * findings + thinking + name):
        raise ProductError(
            "reading_window_too_small",
            Sentence(
                "The window of “{name}” leaves {part} tokens to read the file in, beside the question and "
                "what is written. Choose a model with a larger window, or ask a shorter question.",
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
        beside=beside + question,
        name=name,
    )


def parts_of(passages: Sequence[Passage], room: int) -> list[tuple[int, int]]:
    """As (first, last + 1) of the passages: as many in one as `room` takes, ending before a heading where that leaves
    at least half of it filled. None has passages of two files. One that is longer by itself is a part of its own."""
    found: list[tuple[int, int]] = []
    first = 0
    while first < len(passages):
        end, size, best = first, 0, 0
        while end < len(passages) and (end == first or _goes_on(passages, end, room - size)):
            if end > first and size * 2 >= room and passages[end].heading != passages[end - 1].heading:
                best = end
            size += passages[end].tokens
            end += 1
        whole = end == len(passages) or passages[end].file != passages[first].file
        end = end if whole else best or end
        found.append((first, end))
        first = end
    return found


def _goes_on(passages: Sequence[Passage], at: int, room: int) -> bool:
    """Whether this passage fits behind the one before it."""
    return passages[at].tokens <= room and passages[at].file == passages[at - 1].file


def groups_of(sizes: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Neighbours that are folded together, as (first, last + 1): as many as `room` tokens take."""
    found: list[tuple[int, int]] = []
    first, size = 0, 0
    for place, each in enumerate(sizes):
        if place > first and size + each > room:
            found.append((first, place))
            first, size = place, 0
        size += each
    return [*found, (first, len(sizes))] if sizes else []


def plan_of(unread: Sequence[int], found: Sequence[int], budget: Budget) -> Plan:
    """`unread`: the tokens of each part that is to be asked about; `found`: those of the notes that there are."""
    parts, wrote = parts_take(unread, budget), budget.findings + budget.thinking + budget.name
    read, written = parts.input, parts.output
    sizes, folds = [*found, *[wrote] * len(unread)], 0
    while sum(sizes) > budget.notes:
        groups = groups_of(sizes, budget.fold)
        made = [group for group in groups if group[1] - group[0] > 1]
        read += sum(sum(sizes[first:end]) + budget.beside for first, end in made)
        written += len(made) * (budget.folded + budget.thinking)
        folds += len(made)
        sizes = [
            budget.folded + budget.thinking + budget.name if end - first > 1 else sizes[first] for first, end in groups
        ]
        if not made:  # what is left does not become less
            break
    usage = Usage(read + sum(sizes) + budget.beside, written + budget.answer + budget.thinking)
    return Plan(len(unread), folds, usage)


def parts_take(unread: Sequence[int], budget: Budget) -> Usage:
    """What asking about so many parts reads and writes at most."""
    wrote = budget.findings + budget.thinking
    return Usage(sum(unread) + len(unread) * budget.beside, len(unread) * wrote)


def most_calls(agreed: int) -> int:
    """How many calls a reading may begin of which so many were agreed to."""
    return agreed + agreed // 2 + SPARE


def middle(passages: Sequence[int], start: int, end: int) -> int | None:
    """Where to divide [start, end): the end of a passage, the nearest to the middle; None where none is within."""
    inside = passages[bisect_right(passages, start) : bisect_left(passages, end)]
    return min(inside, key=lambda each: abs(2 * each - start - end), default=None)


def numbers_in(passages: Sequence[int], start: int, end: int) -> range:
    """The numbers of the passages that [start, end) is made of."""
    return range(bisect_right(passages, start) + 1, bisect_left(passages, end) + 2)


def span_of(passages: Sequence[int], number: int) -> tuple[int, int]:
    """The characters of a passage, by its number."""
    return (passages[number - 2] if number > 1 else 0), passages[number - 1]


def left_out(given: Iterable[str], said: str, passages: int) -> list[int]:
    """The numbers of the passages, of so many, that the notes `given` name and what was made of them does not."""
    named = {number for notes in given for number in cited_numbers(notes)}
    return sorted(number for number in named - cited_numbers(said) if 1 <= number <= passages)


def coverage_of(parts: Sequence[Part], spans: Sequence[Sequence[int]], code: str, why: Sentence) -> Coverage:
    """`parts` in their order, each with whether it was read and why not; `code` and `why` hold for those that nobody
    came to. `spans` are those of the pages."""
    total = sum(part.end - part.start for part in parts)
    read = sum(part.end - part.start for part in parts if part.read)
    return Coverage(100 * read // total if total else 0, list(_missing(parts, spans, code, why)))


def _missing(parts: Sequence[Part], spans: Sequence[Sequence[int]], code: str, why: Sentence) -> Iterator[Missing]:
    def reason(part: Part) -> tuple[bool, str, Sentence]:
        return part.read, part.code or code, part.why or why

    for (read, its_code, its_why), several in groupby(parts, key=reason):
        if read:
            continue
        each = list(several)
        start, end = each[0].start, each[-1].end
        yield Missing(start, end, page_at(spans, start), page_at(spans, max(start, end - 1)), its_code, its_why)


def page_at(spans: Sequence[Sequence[int]], position: int) -> int:
    """The page that a character is on, from 1; 0 where there are no pages."""
    return bisect_right(spans, position, key=lambda span: span[0])
