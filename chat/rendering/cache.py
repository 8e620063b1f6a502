"""Render answers once and store their HTML in rows of their own (docs/decisions/0014).

A row is valid while its digest matches. The digest covers all inputs of the HTML: the renderer's source and packages,
the words it inserts, the answer's text, and the address of each citation for this reader. So an upgrade, a renamed or
deleted file, and a public link all get their own HTML without an explicit invalidation. The digest covers only the
numbers that the answer cites, so a new file in the conversation invalidates nothing.

An answer has at most two rows per language, so the size of the table is bounded by the number of answers. The rows are
in the database and not in Redis, since an answer may be read again after a year.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from json import dumps
from pathlib import Path
from uuid import UUID

from django.db import IntegrityError, OperationalError, transaction
from django.urls import reverse
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from chat.models import Message, RenderedAnswer
from chat.models.parts import MessagePart, separate_reasoning
from chat.rendering.markdown import REST_AS_TEXT, RenderAllowance, render
from chat.rendering.references import PlaceLink, Source, mention_href, place_href

PACKAGES = ("markdown-it-py", "mdit-py-plugins", "latex2mathml", "nh3", "Pygments")


class _RecordingSources(Mapping[int, Source]):
    """Sources that record which numbers were looked up, including numbers without a source."""

    def __init__(self, sources: Mapping[int, Source]) -> None:
        self._sources = sources
        self.numbers: set[int] = set()

    def __getitem__(self, number: int) -> Source:
        self.numbers.add(number)
        return self._sources[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def render_answers(answers: Sequence[tuple[Message, Mapping[int, Source]]]) -> dict[UUID, list[list[str]]]:
    """Return the HTML blocks of each text part, by the id of the answer.

    `answers` pairs each answer with the sources that its citations may link to. Takes one query, and one more to store
    new HTML. The HTML of an unfinished answer is not stored.
    """
    language = get_language() or ""
    rows: dict[UUID, list[RenderedAnswer]] = {}
    for row in RenderedAnswer.objects.filter(
        message__in=[answer.pk for answer, _sources in answers], language=language
    ):
        rows.setdefault(row.message_id, []).append(row)
    blocks: dict[UUID, list[list[str]]] = {}
    new: list[RenderedAnswer] = []
    for answer, sources in answers:
        if answer.pk in blocks:  # alternative answers and the branch that continues may share an answer
            continue
        valid = (row for row in rows.get(answer.pk, ()) if row.digest == _digest(answer, sources, row.numbers))
        row = next(valid, None) or _render(answer, sources, language)
        blocks[answer.pk] = row.blocks
        if row.pk is None and answer.status != Message.Status.PENDING:
            new.append(row)
    if new:
        _store(new)
    return blocks


def _store(rows: Sequence[RenderedAnswer]) -> None:
    # Another request may delete an answer or store the same rows meanwhile. The page has its HTML in any case.
    with suppress(IntegrityError, OperationalError), transaction.atomic():
        RenderedAnswer.objects.bulk_create(
            sorted(rows, key=lambda row: row.message_id),  # one order, so that two pages cannot deadlock
            update_conflicts=True,
            unique_fields=["message", "language", "linked"],
            update_fields=["digest", "numbers", "blocks"],
        )


def _render(answer: Message, sources: Mapping[int, Source], language: str) -> RenderedAnswer:
    recording = _RecordingSources(sources)
    allowance = RenderAllowance()
    blocks = [
        render(part["text"], recording, _doubt_links(answer, at, part), allowance, _place_links(at, part))
        for at, part in _text_parts(answer)
    ]
    numbers = sorted(recording.numbers)
    return RenderedAnswer(
        message=answer,
        language=language,
        linked=any(number in sources for number in numbers),
        digest=_digest(answer, sources, numbers),
        numbers=numbers,
        blocks=blocks,
    )


def _text_parts(answer: Message) -> list[tuple[int, MessagePart]]:
    """Return the text parts of the answer, without reasoning, each with its position in the row."""
    return [
        (at, separated)
        for at, part in enumerate(answer.parts)
        for separated in separate_reasoning([part])
        if separated["type"] == "text"
    ]


def _doubt_links(answer: Message, at: int, part: MessagePart) -> dict[int, str]:
    """Return the addresses of the pages that explain doubts, by the number of the citation in the part."""
    doubts = part["check"]["doubts"] if "check" in part else ()
    return {each["citation"]: reverse("chat:doubt", args=[answer.pk, at, each["citation"]]) for each in doubts}


def _place_links(at: int, part: MessagePart) -> dict[tuple[int, int], PlaceLink]:
    """Return the links to the sentences that the part's citations lead to."""
    return {
        (place["citation"], place["number"]): PlaceLink(place_href(place), f"{at}.{place['citation']}")
        for place in part.get("places", ())
    }


def _digest(answer: Message, sources: Mapping[int, Source], numbers: Sequence[int]) -> str:
    """Return the digest of all inputs of the HTML. `numbers` are the citation numbers that the answer looks up."""
    cited = [(number, source.label, source.href) for number in numbers if (source := sources.get(number))]
    texts = [(part["text"], _doubt_links(answer, at, part), part.get("places", ())) for at, part in _text_parts(answer)]
    inputs = [_renderer_version(), _("Copy"), _("unconfirmed"), _(REST_AS_TEXT), mention_href("a"), cited, texts]
    return sha256(dumps(inputs).encode()).hexdigest()


@cache
def _renderer_version() -> str:
    """Return a version of the renderer that changes with its code and its packages."""
    code = sha256()
    for module in sorted(Path(__file__).parent.glob("*.py")):
        code.update(module.read_bytes())
    return " ".join([code.hexdigest(), *map(version, PACKAGES)])
