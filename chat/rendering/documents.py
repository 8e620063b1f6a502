"""Render parts of files and excerpts of answers as documents, with a passage marked in them.

Readers write the text of most kinds of files as Markdown. Its headings would mix with those of the page, so they become
paragraphs that look like headings. To mark a passage in the HTML, private characters surround it while the text is
rendered.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from chat.rendering.markdown import RenderAllowance, render
from readers.api import media_types

# Kinds of files whose text is Markdown. That of others is shown as it is.
MARKDOWN_TYPES = frozenset(
    {
        *("text/markdown", media_types.PDF, media_types.DOCX, media_types.DOC, media_types.RTF, media_types.ODT),
        *(media_types.PPTX, media_types.PPT, media_types.ODP, media_types.EPUB, media_types.HTML),
    }
)
# Private characters that stand for the beginning of a faint mark, the beginning of a mark, and the end of either.
_FAINT_START, _MARK_START, _MARK_END = "\ue000", "\ue001", "\ue002"
_MARK_SIGNS = re.compile(f"[{_FAINT_START}{_MARK_START}{_MARK_END}]")
_HEADING = re.compile(r"<h([1-6])>")
_HEADING_END = re.compile(r"</h[1-6]>")
_PIECES = re.compile(r"<[^<>]*+>|[^<]++|<")
# Marks at the beginning of a line that would lose their meaning behind another character.
_LEAD = re.compile(r"(?:\s|#{1,6}[ \t]|>|[-*+][ \t]|\d{1,9}[.)][ \t]|\|)*+")


class TextMark(NamedTuple):
    """Characters [start, end) of a text to mark. `faint`: they only surround the cited sentence."""

    start: int
    end: int
    faint: bool = False


@dataclass(slots=True)
class DocumentRenderer:
    """Renders the parts of one page. All parts share its allowance."""

    allowance: RenderAllowance

    def html(self, text: str, marks: Sequence[TextMark] = (), *, anchor: bool = False) -> str:
        """Return the text as HTML with its marks, which come in order and do not overlap.

        With `anchor`, links can lead to the first mark that is not faint. Never raises: a text beyond the allowance is
        shown as written.
        """
        blocks = render(_insert_signs(_MARK_SIGNS.sub(" ", text), marks), allowance=self.allowance)
        html = "".join(f'<div class="block">{block}</div>' for block in _replace_signs(blocks, anchor=anchor))
        return _HEADING_END.sub("</p>", _HEADING.sub(r'<p class="heading-\1">', html))


def excerpt_html(text: str, most: int) -> str:
    """Return the beginning of a text as HTML, in at most `most` characters of Markdown, cut between words."""
    if len(text) > most:
        text = f"{text[:most].rpartition(' ')[0] or text[:most]} …"
    return DocumentRenderer(RenderAllowance()).html(text)


def _insert_signs(text: str, marks: Sequence[TextMark]) -> str:
    """Put signs around each mark, behind the characters that begin its first line and before its last blank."""
    for mark in reversed(marks):
        lead = _LEAD.match(text, mark.start)
        first = min(lead.end() if lead else mark.start, mark.end)
        last = first + len(text[first : mark.end].rstrip(" \t\n|"))
        if last > first:
            sign = _FAINT_START if mark.faint else _MARK_START
            text = f"{text[:first]}{sign}{text[first:last]}{_MARK_END}{text[last:]}"
    return text


def _replace_signs(blocks: Iterable[str], *, anchor: bool) -> Iterator[str]:
    """Yield the blocks with `mark` elements in the place of the signs."""
    place = ' id="passage"' if anchor else ""
    focus = ' tabindex="-1"' if anchor else ""
    sign = _MARK_END
    in_formula = False
    for block in blocks:
        written: list[str] = []
        for piece in _PIECES.findall(block):
            if piece.startswith("<"):
                in_formula = piece.startswith("<math") or (in_formula and piece != "</math>")
                written.append(_MARK_SIGNS.sub("", piece))
                continue
            for text in re.split(f"([{_FAINT_START}{_MARK_START}{_MARK_END}])", piece):
                if _MARK_SIGNS.fullmatch(text):
                    sign = text
                elif sign == _MARK_END or not text.strip() or in_formula:
                    written.append(text)
                elif sign == _FAINT_START:
                    written.append(f'<mark class="around">{text}</mark>')
                else:
                    written.append(f"<mark{place}{focus}>{text}</mark>")
                    place = ""
        yield "".join(written)


def plain_html(text: str, marks: Sequence[TextMark] = (), *, anchor: bool = False) -> str:
    """Return a text that is not Markdown unchanged, with its marks."""
    place = ' id="passage"' if anchor else ""
    written: list[str] = []
    end = 0
    for mark in marks:
        marked = escape(text[mark.start : mark.end])
        attributes = ' class="around"' if mark.faint else f'{place} tabindex="-1"'
        written += [escape(text[end : mark.start]), f"<mark{attributes}>{marked}</mark>" if marked else ""]
        end = mark.end
    return f'<pre dir="auto">{"".join(written)}{escape(text[end:])}</pre>'
