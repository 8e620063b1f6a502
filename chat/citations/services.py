"""The citations of an answer held against what they cite: the passages that its tools found, else the file's text."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from chat.citations.claims import Claim, claims
from chat.citations.support import Verdict, compare
from chat.models import Conversation
from chat.rendering.references import Source
from core.errors import ModelError
from files.index.embedders import Vector, bundled
from files.index.search import search
from files.models import File, FileText

WHOLE = 60_000  # characters; of a longer file the passages are compared that a search for the sentence finds
FOUND = 5  # such passages
MAX_EVIDENCE = 1_500  # characters kept of what a sentence was held against

Part = Mapping[str, Any]


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
    passages = _Passages(conversation, parts)
    found = []
    for at, part in enumerate(parts):
        if part["type"] != "text" or not (said := claims(part["text"], sources)):
            continue
        verdicts = [(claim, verdict) for claim in said if (verdict := passages.verdict(claim, sources)) is not None]
        doubts = [_compared(claim, verdict) for claim, verdict in verdicts if not verdict.carried]
        carried = [_compared(claim, verdict) for claim, verdict in verdicts if verdict.carried]
        if verdicts:
            found.append(Check(at, len(verdicts), doubts, carried))
    return found


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


class _Passages:
    def __init__(self, conversation: Conversation, parts: Sequence[Part]) -> None:
        self._conversation = conversation
        self._contents = contents_of(parts)
        self._ids = {number: pk for pk, number in conversation.documents.items()}
        self._texts: dict[int, str] = {}

    def verdict(self, claim: Claim, sources: Mapping[int, Source]) -> Verdict | None:
        """By the passages; a sentence that they do not carry may still stand elsewhere in the files that it cites."""
        title = " ".join(sources[number].label for number in claim.numbers if number in sources)
        given = "\n\n".join(filter(None, (self._contents.get(number) for number in claim.numbers)))
        first = compare(claim.sentence, given, title=title, near=_near) if given else None
        if first is not None and first.carried:
            return first
        elsewhere = "\n\n".join(filter(None, (self._file(number, claim.sentence) for number in claim.numbers)))
        second = compare(claim.sentence, elsewhere, title=title, near=_near) if elsewhere else None
        return second if first is None or (second is not None and second.carried) else first

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
            return "\n\n".join(hit.text for hit in search(query=sentence, files=files, limit=FOUND))
        self._texts[number] = content.text if content is not None else ""
        return self._texts[number]


def _near(one: str, other: str) -> float:
    first, second = _vector(one), _vector(other)
    return float(first @ second) if first is not None and second is not None else 0.0


@lru_cache(maxsize=256)
def _vector(text: str) -> Vector | None:
    try:
        return bundled().embed([text])[0]
    except ModelError:
        return None
