"""Compare the sentences of an answer with the passages that they cite, and explain doubts in sentences.

1. `chat.citations.claims` finds the sentences with citations.
2. `Passages` returns the cited passages. For the answer of a turn, these are the passages that its tools returned. If
   they do not support a sentence, the text of the file is compared, too. Other callers bring their own `Passages`.
3. `chat.citations.support` compares each sentence with its passage.
4. `chat.citations.places` finds the sentence of the document that each citation leads to.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Length, Substr
from django.utils.translation import gettext_lazy

from chat.citations.claims import Claim, claims
from chat.citations.differences import DoubtKind
from chat.citations.meaning import similarity
from chat.citations.places import TextPassage, best_place, place_in
from chat.citations.support import CitationVerdict, compare
from chat.models import Conversation
from chat.models.parts import CitationDoubt, CitationPlace, MessagePart, PassageSpan
from chat.rendering.references import Source
from files.index.ledger import Payer
from files.index.search import search
from files.models import File, FileText

WHOLE = 60_000  # characters; a longer file is not compared as a whole, but searched for the sentence
HITS = 5  # passages per search
MAX_SEARCHES = 30  # sentences of an answer that long files are searched for
MAX_EVIDENCE = 1_500  # stored characters per compared passage
MAX_PASSAGES = 60  # passages of a document that are searched for a sentence
MAX_PASSAGE_LENGTH = 12_000  # characters that are marked as the passage around a sentence
LEAST_CARRIED_SHARE = (
    0.6  # share of the words that the sentence of a passage must have, else the whole file is searched as well
)
REASONS = {
    DoubtKind.NUMBER: gettext_lazy("The passage does not have the number “%(words)s” for this."),
    DoubtKind.NAME: gettext_lazy("The passage does not name “%(words)s” for this."),
    DoubtKind.WORD: gettext_lazy("The passage does not say “%(words)s” here, but something else."),
    DoubtKind.NEGATION: gettext_lazy("The answer and the passage disagree about a negation: “%(words)s”."),
    DoubtKind.OPPOSITE: gettext_lazy("The passage says the opposite of “%(words)s”."),
    DoubtKind.ORDER: gettext_lazy("The passage has these the other way round: “%(words)s”."),
    DoubtKind.ABSENT: gettext_lazy("The passage speaks of something else."),
    DoubtKind.MODEL: gettext_lazy(
        "The model that checks citations says that the passage does not carry it: “%(words)s”."
    ),
}


class Passages(Protocol):
    """The passages that an answer may cite, by number."""

    def cited(self, numbers: Sequence[int]) -> str:
        """Return the passages with these numbers, or an empty text if they are unknown."""

    def around(self, numbers: Sequence[int], sentence: str) -> str:
        """Return other passages of the cited documents that may support the sentence, or an empty text."""

    def place(self, number: int, sentence: str) -> "FoundPlace | None":
        """Return the sentence of the document that carries the sentence; None if there is none."""


class FoundPlace(TypedDict, total=False):
    """A `CitationPlace` without the citation and the number."""

    file: str
    page: int
    start: int
    end: int
    sentence_start: int
    sentence_end: int
    heading: str
    quote: str


class SentenceAndPassage(TypedDict):
    """A sentence, and the passage (`evidence`) that it is compared with."""

    sentence: str
    evidence: str


@dataclass(frozen=True, slots=True)
class PartCheck:
    """The check of one text of an answer. `part` is its index, `checked` the number of compared sentences.

    `places` are the sentences that its citations lead to.
    """

    part: int
    checked: int
    doubts: list[CitationDoubt]
    supported: list[CitationDoubt]
    places: list[CitationPlace] = field(default_factory=list)


def check(conversation: Conversation, parts: Sequence[MessagePart], sources: Mapping[int, Source]) -> list[PartCheck]:
    """Check each text of an answer that cites documents. `sources` are the documents it may cite.

    Reads only files that the conversation's owner may see.
    """
    return check_against(_AnswerPassages(conversation, parts), parts, sources)


def check_against(passages: Passages, parts: Sequence[MessagePart], sources: Mapping[int, Source]) -> list[PartCheck]:
    """Check each text that cites documents against these passages."""
    checks = []
    for index, part in enumerate(parts):
        if part["type"] != "text" or not (text_claims := claims(part["text"], sources)):
            continue
        verdicts = [
            (claim, verdict) for claim in text_claims if (verdict := _verdict(claim, passages, sources)) is not None
        ]
        doubts = [_checked_sentence(claim, verdict) for claim, verdict in verdicts if not verdict.supported]
        supported = [_checked_sentence(claim, verdict) for claim, verdict in verdicts if verdict.supported]
        places = list(_places(text_claims, passages, sources))
        if verdicts or places:
            checks.append(PartCheck(index, len(verdicts), doubts, supported, places))
    return checks


def _places(text_claims: Iterable[Claim], passages: Passages, sources: Mapping[int, Source]) -> Iterator[CitationPlace]:
    """Yield the sentence of each cited document that carries the claim."""
    for claim in text_claims:
        for number in claim.numbers:
            place = passages.place(number, claim.sentence) if number in sources else None
            if place is not None:
                yield {"citation": claim.citation, "number": number, **place}


def in_words(doubt: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each reason of a doubt, a stored `CitationDoubt`."""
    return [REASONS[DoubtKind(each["reason"])] % {"words": each["words"]} for each in doubt["reasons"]]


def contents_of(parts: Iterable[MessagePart]) -> dict[int, str]:
    """Return the text of each document that the tools of an answer returned, by number."""
    contents: dict[int, list[str]] = {}
    for part in parts:
        if not part.get("documents"):
            continue
        for number, text in contents_in(part["text"]).items():
            contents.setdefault(number, []).append(text)
    return {number: "\n\n".join(texts) for number, texts in contents.items()}


def contents_in(result: str) -> dict[int, str]:
    """Return the texts of the documents in a tool's result, by number. A result without documents has none.

    Text may follow the JSON.
    """
    try:
        documents = json.JSONDecoder().raw_decode(result)[0]["documents"]
        return {int(each["document"]): str(each["contents"]) for each in documents}
    except (ValueError, KeyError, TypeError):
        return {}


def _checked_sentence(claim: Claim, verdict: CitationVerdict) -> CitationDoubt:
    return {
        "citation": claim.citation,
        "numbers": list(claim.numbers),
        "sentence": claim.sentence,
        "evidence": verdict.evidence[:MAX_EVIDENCE],
        "reasons": [{"reason": str(reason), "words": words} for reason, words in verdict.reasons],
    }


def _verdict(claim: Claim, passages: Passages, sources: Mapping[int, Source]) -> CitationVerdict | None:
    """Compare a claim with the cited passages. If they do not support it, compare it with the text around them."""
    title = " ".join(sources[number].label for number in claim.numbers if number in sources)
    cited = passages.cited(claim.numbers)
    first = compare(claim.sentence, cited, title=title, similarity=similarity) if cited else None
    if first is not None and first.supported:
        return first
    around = passages.around(claim.numbers, claim.sentence)
    second = compare(claim.sentence, around, title=title, similarity=similarity) if around else None
    return second if first is None or (second is not None and second.supported) else first


@dataclass(frozen=True, slots=True)
class _FilePassages:
    """Passages of a file, and the [start, end) of its pages."""

    file: UUID
    passages: list[TextPassage]
    pages: list[tuple[int, int]]


class _AnswerPassages:
    """The passages that an answer's tools returned, and the texts of the files around them."""

    def __init__(self, conversation: Conversation, parts: Sequence[MessagePart]) -> None:
        self._conversation = conversation
        self._contents = contents_of(parts)
        self._spans = _spans_of(parts)
        self._ids = {number: pk for pk, number in conversation.documents.items()}
        self._returned: dict[int, _FilePassages | None] = {}
        self._whole: dict[int, _FilePassages | None] = {}
        self._searched: dict[tuple[int, str], _FilePassages] = {}

    def cited(self, numbers: Sequence[int]) -> str:
        return "\n\n".join(filter(None, (self._contents.get(number) for number in numbers)))

    def around(self, numbers: Sequence[int], sentence: str) -> str:
        files = (self._file(number, sentence) for number in numbers)
        return "\n\n".join(passage.text for each in files if each is not None for passage in each.passages)

    def place(self, number: int, sentence: str) -> FoundPlace | None:
        pk = self._pk(number)
        if pk is None:
            return self._quote(number, sentence)
        if number not in self._returned:
            self._returned[number] = self._passages_of(pk, self._spans.get(number, []))
        returned = _place_in_file(self._returned[number], sentence)
        if returned is not None and returned.share >= LEAST_CARRIED_SHARE:
            return returned.place
        # The model may know the file from an earlier turn.
        around = _place_in_file(self._file(number, sentence), sentence)
        best = max(filter(None, (returned, around)), key=lambda each: each.share, default=None)
        return best.place if best is not None else None

    def _quote(self, number: int, sentence: str) -> FoundPlace | None:
        """Return the sentence of a web page that carries the sentence."""
        contents = self._contents.get(number, "")
        place = place_in(sentence, contents)
        return {"quote": contents[place.start : place.end][:MAX_EVIDENCE]} if place is not None else None

    def _pk(self, number: int) -> UUID | None:
        """Return the id of the file with this number; None for a web page."""
        try:
            return UUID(self._ids.get(number, ""))
        except ValueError:
            return None

    def _text_of(self, pk: UUID) -> QuerySet[FileText]:
        """Return the text of the file, if the owner of the conversation may see it."""
        return FileText.objects.filter(file__in=File.objects.visible_to(self._conversation.owner).filter(pk=pk))

    def _passages_of(self, pk: UUID, passages: Sequence[PassageSpan]) -> _FilePassages | None:
        """Return these passages of the file; None without passages or for a deleted file."""
        if not passages:
            return None
        parts = {
            f"part{at}": Substr("text", span["start"] + 1, max(1, span["end"] - span["start"]))
            for at, span in enumerate(passages)
        }
        row = self._text_of(pk).annotate(**parts).values("spans", *parts).first()
        if row is None:
            return None
        texts = [
            TextPassage(span["start"], row[f"part{at}"], span.get("heading", "")) for at, span in enumerate(passages)
        ]
        return _FilePassages(pk, texts, row["spans"])

    def _file(self, number: int, sentence: str) -> _FilePassages | None:
        """Return the text of the file with this number as one passage, or the best passages of a long file.

        None for a web page or a deleted file.
        """
        if number in self._whole:
            return self._whole[number]
        pk = self._pk(number)
        if pk is None:
            return None
        row = (
            self._text_of(pk)
            .annotate(length=Length("text"), start=Substr("text", 1, WHOLE))
            .values("spans", "length", "start")
            .first()
        )
        if row is not None and row["length"] > WHOLE:
            return self._search(number, pk, sentence, row["spans"])
        self._whole[number] = _FilePassages(pk, [TextPassage(0, row["start"])], row["spans"]) if row else None
        return self._whole[number]

    def _search(self, number: int, pk: UUID, sentence: str, pages: list[tuple[int, int]]) -> _FilePassages | None:
        """Return the best passages of a long file for the sentence; None after `MAX_SEARCHES` sentences."""
        key = (number, sentence)
        if key not in self._searched and len(self._searched) < MAX_SEARCHES:
            payer = Payer(self._conversation.owner_id, conversation=self._conversation.pk)
            hits = search(query=sentence, files=File.objects.filter(pk=pk), limit=HITS, payer=payer)
            passages = [TextPassage(hit.start, hit.text, hit.heading) for hit in hits]
            self._searched[key] = _FilePassages(pk, passages, pages)
        return self._searched.get(key)


@dataclass(frozen=True, slots=True)
class _SharedPlace:
    share: float
    place: FoundPlace


def _place_in_file(file: _FilePassages | None, sentence: str) -> _SharedPlace | None:
    """Return the best place of the sentence in these passages of a file."""
    best = best_place(sentence, file.passages) if file is not None else None
    if file is None or best is None:
        return None
    passage, place = best
    place_json: FoundPlace = {
        "file": str(file.file),
        "page": bisect_right(file.pages, place.start, key=lambda span: span[0]),
        "start": passage.start,
        "end": passage.start + len(passage.text),
        "sentence_start": place.start,
        "sentence_end": place.end,
    }
    if len(passage.text) > MAX_PASSAGE_LENGTH:  # the whole text of a file is no passage
        place_json |= {"start": place.start, "end": place.end}
    if passage.heading:
        place_json["heading"] = passage.heading
    return _SharedPlace(place.share, place_json)


def _spans_of(parts: Iterable[MessagePart]) -> dict[int, list[PassageSpan]]:
    """Return the passages of files that the tools of an answer returned, by the number of the document, each once."""
    spans: dict[int, list[PassageSpan]] = {}
    for part in parts:
        for document in part.get("documents", ()):
            if "start" not in document:
                continue
            best: PassageSpan = {"start": document["start"], "end": document["end"]}
            earlier = spans.setdefault(document["number"], [])
            earlier += [span for span in document.get("passages", [best]) if span not in earlier]
            del earlier[MAX_PASSAGES:]
    return spans
