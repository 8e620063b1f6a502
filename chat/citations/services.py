"""Compare the sentences of an answer with the passages that they cite, and explain doubts in sentences.

1. `chat.citations.claims` finds the sentences with citations.
2. `Passages` returns the cited passages. For the answer of a turn, these are the passages that its tools returned. If
   they do not support a sentence, the text of the file is compared, too. Other callers bring their own `Passages`.
3. `chat.citations.support` compares each sentence with its passage.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict
from uuid import UUID

from django.utils.translation import gettext_lazy

from chat.citations.claims import Claim, claims
from chat.citations.differences import DoubtKind
from chat.citations.meaning import similarity
from chat.citations.support import CitationVerdict, compare
from chat.models import Conversation
from chat.models.parts import CitationDoubt, MessagePart
from chat.rendering.references import Source
from files.index.ledger import Payer
from files.index.search import search
from files.models import File, FileText

WHOLE = 60_000  # characters; a longer file is not compared as a whole, but searched for the sentence
HITS = 5  # passages per search
MAX_EVIDENCE = 1_500  # stored characters per compared passage
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


class SentenceAndPassage(TypedDict):
    """A sentence, and the passage (`evidence`) that it is compared with."""

    sentence: str
    evidence: str


@dataclass(frozen=True, slots=True)
class PartCheck:
    """The check of one text of an answer. `part` is its index, `checked` the number of compared sentences."""

    part: int
    checked: int
    doubts: list[CitationDoubt]
    supported: list[CitationDoubt]


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
        if verdicts:
            checks.append(PartCheck(index, len(verdicts), doubts, supported))
    return checks


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


class _AnswerPassages:
    """The passages that an answer's tools returned, and the texts of the files around them."""

    def __init__(self, conversation: Conversation, parts: Sequence[MessagePart]) -> None:
        self._conversation = conversation
        self._contents = contents_of(parts)
        self._ids = {number: pk for pk, number in conversation.documents.items()}
        self._texts: dict[int, str] = {}

    def cited(self, numbers: Sequence[int]) -> str:
        return "\n\n".join(filter(None, (self._contents.get(number) for number in numbers)))

    def around(self, numbers: Sequence[int], sentence: str) -> str:
        return "\n\n".join(filter(None, (self._file(number, sentence) for number in numbers)))

    def _file(self, number: int, sentence: str) -> str:
        """Return the text of the file with this number, or the best passages of a long file.

        The text is empty for a web page or a deleted file.
        """
        if number in self._texts:
            return self._texts[number]
        try:
            pk = UUID(self._ids.get(number, ""))
        except ValueError:
            return ""  # a web page
        files = File.objects.visible_to(self._conversation.owner).filter(pk=pk)
        content = FileText.objects.filter(file__in=files).first()
        if content is not None and len(content.text) > WHOLE:
            payer = Payer(self._conversation.owner_id, conversation=self._conversation.pk)
            return "\n\n".join(hit.text for hit in search(query=sentence, files=files, limit=HITS, payer=payer))
        self._texts[number] = content.text if content is not None else ""
        return self._texts[number]
