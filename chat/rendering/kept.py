"""Answers are rendered once: their HTML is kept in a row beside the message and lasts as long as that.

A row holds only while all of it does that it was made from: the renderer's own source and packages, the words that it
puts in, the answer's text, and where each of its citations leads for this reader. So an upgrade, a file that was
deleted or renamed, and the link that a stranger reads by never show what was made for something else, and nothing has
to be told that it changed. A conversation that learns of one more file renders nothing again: only the numbers count
that the answer cites. There are at most two rows a language, so what is kept is bounded by what was written; it is in
the database and not in Redis, since an answer that is read a year later should not cost more either.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from json import dumps
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import IntegrityError, OperationalError, transaction
from django.urls import reverse
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from chat.models import Message, RenderedAnswer
from chat.rendering.markdown import REST, Allowance, render
from chat.rendering.references import Source, mention_href

PACKAGES = ("markdown-it-py", "mdit-py-plugins", "latex2mathml", "nh3", "Pygments")


class _Watched(Mapping[int, Source]):
    """Sources that note the numbers that somebody looks for, found or not."""

    def __init__(self, sources: Mapping[int, Source]) -> None:
        self._sources = sources
        self.asked: set[int] = set()

    def __getitem__(self, number: int) -> Source:
        self.asked.add(number)
        return self._sources[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def blocks_of(answers: Sequence[tuple[Message, Mapping[int, Source]]]) -> dict[UUID, list[list[str]]]:
    """By answer, the HTML of the blocks of each of its text parts; each comes with what its citations may lead to.

    One query, and one more for what was not rendered before. An answer that is being written is not kept.
    """
    language = get_language() or ""
    rows: dict[UUID, list[RenderedAnswer]] = {}
    for row in RenderedAnswer.objects.filter(
        message__in=[answer.pk for answer, _sources in answers], language=language
    ):
        rows.setdefault(row.message_id, []).append(row)
    found: dict[UUID, list[list[str]]] = {}
    new: list[RenderedAnswer] = []
    for answer, sources in answers:
        if answer.pk in found:  # answers side by side and the branch that goes on share one
            continue
        kept = (row for row in rows.get(answer.pk, ()) if row.digest == _digest(answer, sources, row.numbers))
        row = next(kept, None) or _rendered(answer, sources, language)
        found[answer.pk] = row.blocks
        if row.pk is None and answer.status != Message.Status.PENDING:
            new.append(row)
    if new:
        _keep(new)
    return found


def _keep(rows: Sequence[RenderedAnswer]) -> None:
    # An answer may be deleted meanwhile, and two pages may keep the same ones: whoever fails has shown it all the same.
    with suppress(IntegrityError, OperationalError), transaction.atomic():
        RenderedAnswer.objects.bulk_create(
            sorted(rows, key=lambda row: row.message_id),  # else each of two could wait for the other
            update_conflicts=True,
            unique_fields=["message", "language", "linked"],
            update_fields=["digest", "numbers", "blocks"],
        )


def _rendered(answer: Message, sources: Mapping[int, Source], language: str) -> RenderedAnswer:
    watched = _Watched(sources)
    allowance = Allowance()
    blocks = [render(part["text"], watched, _doubts(answer, part), allowance) for part in _texts(answer)]
    numbers = sorted(watched.asked)
    return RenderedAnswer(
        message=answer,
        language=language,
        linked=any(number in sources for number in numbers),
        digest=_digest(answer, sources, numbers),
        numbers=numbers,
        blocks=blocks,
    )


def _texts(answer: Message) -> list[dict[str, Any]]:
    return [part for part in answer.parts if part["type"] == "text"]


def _doubts(answer: Message, part: Mapping[str, Any]) -> dict[int, str]:
    """Where the signs lead, by the number of the citation in the part."""
    at = answer.parts.index(part)
    doubts = part.get("check", {}).get("doubts", ())
    return {each["citation"]: reverse("chat:doubt", args=[answer.pk, at, each["citation"]]) for each in doubts}


def _digest(answer: Message, sources: Mapping[int, Source], numbers: Sequence[int]) -> str:
    cited = [(number, found.label, found.href) for number in numbers if (found := sources.get(number))]
    texts = [(part["text"], _doubts(answer, part)) for part in _texts(answer)]
    made_from = [_renderer(), _("Copy"), _("unconfirmed"), _(REST), mention_href("a"), cited, texts]
    return sha256(dumps(made_from).encode()).hexdigest()


@cache
def _renderer() -> str:
    """Another one whenever the code has changed that makes the HTML."""
    code = sha256()
    for module in sorted(Path(__file__).parent.glob("*.py")):
        code.update(module.read_bytes())
    return " ".join([code.hexdigest(), *map(version, PACKAGES)])
