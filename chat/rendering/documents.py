"""Render parts of files and excerpts of answers as documents, with a passage marked in them.

Readers write the text of most kinds of files as Markdown. Its headings would stand among those of the page, so they
become paragraphs that look like headings. A passage is marked in the HTML: two private characters stand around it while
the text is rendered.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape

from chat.rendering.markdown import RenderAllowance, render
from readers.api import media_types

# Kinds of files whose text is Markdown. That of others is shown as it is.
MARKDOWN_TYPES = frozenset(
    {
        *("text/markdown", media_types.PDF, media_types.DOCX, media_types.DOC, media_types.RTF, media_types.ODT),
        *(media_types.PPTX, media_types.PPT, media_types.ODP, media_types.EPUB, media_types.HTML),
    }
)
_OPENS, _CLOSES = "\ue000", "\ue001"
_SIGNS = re.compile(f"[{_OPENS}{_CLOSES}]")
_HEADING = re.compile(r"<h([1-6])>")
_HEADING_END = re.compile(r"</h[1-6]>")
_PIECES = re.compile(r"<[^>]*>|[^<]+")
# Marks at the beginning of a line that would lose their meaning behind another character.
_LEAD = re.compile(r"(?:\s|#{1,6}[ \t]|>|[-*+][ \t]|\d{1,9}[.)][ \t]|\|)*+")


@dataclass(slots=True)
class DocumentRenderer:
    """Renders the parts of one page. All parts share its allowance."""

    allowance: RenderAllowance

    def html(self, text: str, begins: int = 0, ends: int = 0, *, anchor: bool = False) -> str:
        """Return the text as HTML with the characters [begins, ends) marked. With `anchor` links can lead to the mark.

        Never raises: a text beyond the allowance is shown as written.
        """
        text = _SIGNS.sub(" ", text)
        blocks = render(_with_signs(text, begins, ends) if ends > begins else text, allowance=self.allowance)
        html = "".join(f'<div class="block">{block}</div>' for block in _marked(blocks, anchor=anchor))
        return _HEADING_END.sub("</p>", _HEADING.sub(r'<p class="heading-\1">', html))


def excerpt_html(text: str, most: int) -> str:
    """Return the beginning of a text as HTML, in at most `most` characters of Markdown, cut between words."""
    if len(text) > most:
        text = f"{text[:most].rpartition(' ')[0] or text[:most]} …"
    return DocumentRenderer(RenderAllowance()).html(text)


def _with_signs(text: str, begins: int, ends: int) -> str:
    """Put the signs around the passage, behind the marks that begin its first line and before its last blank."""
    lead = _LEAD.match(text, begins)
    first = min(lead.end() if lead else begins, ends)
    last = first + len(text[first:ends].rstrip(" \t\n|"))
    return f"{text[:first]}{_OPENS}{text[first:last]}{_CLOSES}{text[last:]}"


def _marked(blocks: Iterable[str], *, anchor: bool) -> Iterator[str]:
    """Yield the blocks with `mark` elements in the place of the signs."""
    place = ' id="passage"' if anchor else ""
    inside = in_formula = False
    for block in blocks:
        written: list[str] = []
        for piece in _PIECES.findall(block):
            if piece.startswith("<"):
                in_formula = piece.startswith("<math") or (in_formula and piece != "</math>")
                written.append(_SIGNS.sub("", piece))
                continue
            for text in re.split(f"([{_OPENS}{_CLOSES}])", piece):
                if text in (_OPENS, _CLOSES):
                    inside = text == _OPENS
                elif inside and text.strip() and not in_formula:
                    written.append(f'<mark{place} tabindex="-1">{text}</mark>')
                    place = ""
                else:
                    written.append(text)
        yield "".join(written)


def plain_html(text: str, begins: int, ends: int, *, anchor: bool) -> str:
    """Return a text that is no Markdown, as it is, with the characters [begins, ends) marked."""
    place = ' id="passage"' if anchor else ""
    passage = f'<mark{place} tabindex="-1">{escape(text[begins:ends])}</mark>' if ends > begins else ""
    return f'<pre dir="auto">{escape(text[:begins])}{passage}{escape(text[ends:])}</pre>'
