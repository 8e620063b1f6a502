"""The citations of an answer held against what they cite, and in words what speaks against one.

An answer of a turn is held against the passages that its tools found, else against the file's text; of other texts,
whoever has them checked knows the passages.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol
from uuid import UUID

from django.utils.translation import gettext_lazy

from chat.citations.claims import Claim, claims
from chat.citations.support import Reason, Verdict, compare
from chat.models import Conversation
from chat.rendering.references import Source
from core.errors import ModelError
from files.index.embedders import embed_bundled
from files.index.ledger import Payer
from files.index.search import search
from files.index.vectors import Vector
from files.models import File, FileText

WHOLE = 60_000  # characters; of a longer file the passages are compared that a search for the sentence finds
FOUND = 5  # such passages
MAX_EVIDENCE = 1_500  # characters kept of what a sentence was held against
REASONS = {
    Reason.NUMBER: gettext_lazy("What the passage says of this does not have the number “%(words)s”."),
    Reason.NAME: gettext_lazy("What the passage says of this does not name “%(words)s”."),
    Reason.NEGATION: gettext_lazy("One of the two says no where the other does not: “%(words)s”."),
    Reason.OPPOSITE: gettext_lazy("The passage says the opposite of “%(words)s”."),
    Reason.ORDER: gettext_lazy("The passage has these the other way round: “%(words)s”."),
    Reason.ABSENT: gettext_lazy("The passage speaks of something else."),
    Reason.MODEL: gettext_lazy("The model that checks citations says that the passage does not carry it: “%(words)s”."),
}

Part = Mapping[str, Any]


class Passages(Protocol):
    """What an answer may cite, by number."""

    def cited(self, numbers: Sequence[int]) -> str:
        """What stands under these; empty where that is not known."""

    def around(self, numbers: Sequence[int], sentence: str) -> str:
        """Where else the sentence may stand; empty where nowhere."""


@dataclass(frozen=True, slots=True)
class Check:
    """Of the text that is the `part`-th of the answer: how many sentences were compared, those not carried, and the
    others, in the form of the event `CITATION_CHECK`."""

    part: int
    checked: int
    doubts: list[dict[str, Any]]
    carried: list[dict[str, Any]]


def check(conversation: Conversation, parts: Sequence[Part], sources: Mapping[int, Source]) -> list[Check]:
    """Of each text of an answer that cites something; `sources` are what it may cite. Reads only files that the
    conversation's owner may see."""
    return check_against(_Found(conversation, parts), parts, sources)


def check_against(passages: Passages, parts: Sequence[Part], sources: Mapping[int, Source]) -> list[Check]:
    """The same of texts whose passages are these."""
    found = []
    for at, part in enumerate(parts):
        if part["type"] != "text" or not (said := claims(part["text"], sources)):
            continue
        verdicts = [(claim, verdict) for claim in said if (verdict := _verdict(claim, passages, sources)) is not None]
        doubts = [_compared(claim, verdict) for claim, verdict in verdicts if not verdict.carried]
        carried = [_compared(claim, verdict) for claim, verdict in verdicts if verdict.carried]
        if verdicts:
            found.append(Check(at, len(verdicts), doubts, carried))
    return found


def in_words(doubt: Mapping[str, Any]) -> list[str]:
    """What speaks against a sentence, a sentence for each reason."""
    return [REASONS[Reason(each["reason"])] % {"words": each["words"]} for each in doubt["reasons"]]


def contents_of(parts: Iterable[Part]) -> dict[int, str]:
    """The text that the model was given of each document by the tools of an answer, by number."""
    found: dict[int, list[str]] = {}
    for part in parts:
        if not part.get("documents"):
            continue
        for number, text in contents_in(part["text"]).items():
            found.setdefault(number, []).append(text)
    return {number: "\n\n".join(texts) for number, texts in found.items()}


def contents_in(result: str) -> dict[int, str]:
    """The texts in a tool's result: JSON, with remarks behind it; none where a result has another form."""
    try:
        given = json.JSONDecoder().raw_decode(result)[0]["documents"]
        return {int(each["document"]): str(each["contents"]) for each in given}
    except (ValueError, KeyError, TypeError):
        return {}


def _compared(claim: Claim, verdict: Verdict) -> dict[str, Any]:
    return {
        "citation": claim.citation,
        "numbers": list(claim.numbers),
        "sentence": claim.sentence,
        "evidence": verdict.evidence[:MAX_EVIDENCE],
        "reasons": [{"reason": str(reason), "words": words} for reason, words in verdict.reasons],
    }


def _verdict(claim: Claim, passages: Passages, sources: Mapping[int, Source]) -> Verdict | None:
    """By what is cited; a sentence that this does not carry may still stand around it."""
    title = " ".join(sources[number].label for number in claim.numbers if number in sources)
    cited = passages.cited(claim.numbers)
    first = compare(claim.sentence, cited, title=title, near=_near) if cited else None
    if first is not None and first.carried:
        return first
    around = passages.around(claim.numbers, claim.sentence)
    second = compare(claim.sentence, around, title=title, near=_near) if around else None
    return second if first is None or (second is not None and second.carried) else first


class _Found:
    """What the tools of an answer found, and around that the files."""

    def __init__(self, conversation: Conversation, parts: Sequence[Part]) -> None:
        self._conversation = conversation
        self._contents = contents_of(parts)
        self._ids = {number: pk for pk, number in conversation.documents.items()}
        self._texts: dict[int, str] = {}

    def cited(self, numbers: Sequence[int]) -> str:
        return "\n\n".join(filter(None, (self._contents.get(number) for number in numbers)))

    def around(self, numbers: Sequence[int], sentence: str) -> str:
        return "\n\n".join(filter(None, (self._file(number, sentence) for number in numbers)))

    def _file(self, number: int, sentence: str) -> str:
        """What a file that has this number has to say; empty for what is none, or is gone."""
        if number in self._texts:
            return self._texts[number]
        try:
            pk = UUID(self._ids.get(number, ""))
        except ValueError:
            return ""  # a page of the web
        files = File.objects.visible_to(self._conversation.owner).filter(pk=pk)
        content = FileText.objects.filter(file__in=files).first()
        if content is not None and len(content.text) > WHOLE:
            payer = Payer(self._conversation.owner_id, conversation=self._conversation.pk)
            return "\n\n".join(hit.text for hit in search(query=sentence, files=files, limit=FOUND, payer=payer))
        self._texts[number] = content.text if content is not None else ""
        return self._texts[number]


def _near(one: str, other: str) -> float:
    first, second = _vector(one), _vector(other)
    return float(first @ second) if first is not None and second is not None else 0.0


@lru_cache(maxsize=256)
def _vector(text: str) -> Vector | None:
    try:
        return embed_bundled([text])[0]
    except ModelError:
        return None
