"""Tags that show texts of files and answers as documents."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from django import template
from django.template.defaultfilters import linebreaksbr
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from chat.rendering.documents import MARKDOWN_TYPES, DocumentRenderer, TextMark, excerpt_html, plain_html
from chat.rendering.markdown import RenderAllowance
from chat.web.sources import SourceView
from core.marks import without_marks
from files.models import File
from files.pages import MarkedText, TextPiece

register = template.Library()
EXCERPT = 600  # characters of an answer in a list


class RenderedPiece(NamedTuple):
    """A piece of a file's text with its HTML. `sentence`: the part of it that a link leads to, empty if none."""

    piece: TextPiece
    html: SafeString
    sentence: str


@register.simple_tag
def rendered_pieces(
    file: File, pieces: Sequence[tuple[TextPiece, MarkedText]], begins: int | None
) -> Iterator[RenderedPiece]:
    """Yield the pieces of a window as HTML, with their marks. `begins`: where the sentence begins in the file."""
    renderer = DocumentRenderer(RenderAllowance())
    for piece, text in pieces:
        anchor = begins is not None and piece.start <= begins < piece.end
        marks = _marks(text.before, text.lead, text.sentence, text.tail)
        if file.media_type in MARKDOWN_TYPES:
            html = f'<div class="prose document">{renderer.html(piece.text, marks, anchor=anchor)}</div>'
        else:
            html = plain_html(piece.text, marks, anchor=anchor)
        yield RenderedPiece(piece, mark_safe(html), text.sentence)  # noqa: S308 - the renderer has sanitised it


def _marks(before: str, lead: str, sentence: str, tail: str) -> list[TextMark]:
    """Return the marks of a sentence and of the passage around it, which follow `before` in their text."""
    begins = len(before) + len(lead)
    ends = begins + len(sentence)
    marks = [
        TextMark(len(before), begins, faint=True),
        TextMark(begins, ends),
        TextMark(ends, ends + len(tail), faint=True),
    ]
    return [mark for mark in marks if mark.end > mark.start]


@register.filter
def source_excerpt(source: SourceView) -> SafeString:
    """Return the excerpt of a source as HTML, with the cited sentence marked."""
    lead, sentence, tail = source.excerpt
    if source.markdown:
        marks = [TextMark(len(lead), len(lead) + len(sentence))] if sentence else []
        html = DocumentRenderer(RenderAllowance()).html(f"{lead}{sentence}{tail}", marks)
        return mark_safe(html)  # noqa: S308 - the renderer has sanitised it
    return format_html(
        "{}{}{}",
        linebreaksbr(lead),
        format_html("<mark>{}</mark>", linebreaksbr(sentence)) if sentence else "",
        linebreaksbr(tail),
    )


@register.filter
def excerpt(text: str) -> SafeString:
    """Return the beginning of an answer as HTML."""
    return mark_safe(excerpt_html(text, EXCERPT))  # noqa: S308 - the renderer has sanitised it


@register.filter
def plain(text: str) -> str:
    """Return a piece of Markdown as plain words. It may begin and end in the middle of a pair of marks."""
    return without_marks(text).replace("**", "").replace("`", "")
