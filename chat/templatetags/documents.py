"""Tags that show texts of files and answers as documents."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from django import template
from django.utils.safestring import SafeString, mark_safe

from chat.rendering.documents import MARKDOWN_TYPES, DocumentRenderer, excerpt_html, plain_html
from chat.rendering.markdown import RenderAllowance
from core.marks import without_marks
from files.models import File
from files.pages import TextPiece

register = template.Library()
EXCERPT = 600  # characters of an answer in a list


class RenderedPiece(NamedTuple):
    """A piece of a file's text with its HTML. `passage`: the part of it that a link names, empty if none."""

    piece: TextPiece
    html: SafeString
    passage: str


@register.simple_tag
def rendered_pieces(
    file: File, pieces: Sequence[tuple[TextPiece, str, str, str]], begins: int | None
) -> Iterator[RenderedPiece]:
    """Yield the pieces of a window, each with the text before, in and after a passage, as HTML."""
    renderer = DocumentRenderer(RenderAllowance())
    for piece, before, passage, _after in pieces:
        start, end = len(before), len(before) + len(passage)
        anchor = begins is not None and piece.start <= begins < piece.end
        if file.media_type in MARKDOWN_TYPES:
            html = f'<div class="prose document">{renderer.html(piece.text, start, end, anchor=anchor)}</div>'
        else:
            html = plain_html(piece.text, start, end, anchor=anchor)
        yield RenderedPiece(piece, mark_safe(html), passage)  # noqa: S308 - the renderer has sanitised it


@register.filter
def excerpt(text: str) -> SafeString:
    """Return the beginning of an answer as HTML."""
    return mark_safe(excerpt_html(text, EXCERPT))  # noqa: S308 - the renderer has sanitised it


@register.filter
def plain(text: str) -> str:
    """Return a piece of Markdown as plain words. It may begin and end in the middle of a pair of marks."""
    return without_marks(text).replace("**", "").replace("`", "")
