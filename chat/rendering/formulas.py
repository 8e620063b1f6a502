r"""Formulas in LaTeX become MathML, which browsers draw without scripts or fonts of ours.

`$…$` and `$$…$$` are read by a plugin of the parser; here are the brackets `\(…\)` and `\[…\]` that many models write.
"""

from functools import lru_cache
from html import escape
from typing import Literal

import latex2mathml.converter
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

MAX_CHARACTERS = 4_000
MAX_LINES = 100
BRACKETS = {"\\(": ("math_inline", "\\)"), "\\[": ("math_inline_double", "\\]")}

# What of MathML passes the sanitiser: nothing that leads elsewhere or holds HTML.
TAGS = {
    *("math", "mrow", "mi", "mo", "mn", "ms", "mtext", "mspace", "mstyle", "mpadded", "mphantom", "menclose", "merror"),
    *("mfrac", "msqrt", "mroot", "msub", "msup", "msubsup", "munder", "mover", "munderover", "mmultiscripts"),
    *("mprescripts", "mtable", "mtr", "mtd", "mlabeledtr"),
}
ATTRIBUTES = {
    *("display", "displaystyle", "scriptlevel", "mathvariant", "mathcolor", "linethickness", "notation"),
    *("stretchy", "symmetric", "largeop", "movablelimits", "fence", "form", "separator", "accent", "accentunder"),
    *("lspace", "rspace", "width", "height", "depth", "minsize", "maxsize"),
    *("columnalign", "columnspacing", "rowspacing", "columnlines", "rowlines"),
}


@lru_cache(maxsize=512)
def to_mathml(latex: str, display: Literal["inline", "block"]) -> str:
    try:
        if len(latex) > MAX_CHARACTERS:
            return f"<code>{escape(latex)}</code>"
        return str(latex2mathml.converter.convert(latex.strip(), display=display))
    except Exception:  # the converter raises whatever its parser stumbles over; the source is still readable
        return f"<code>{escape(latex)}</code>"


def _bracket_formula(state: StateInline, silent: bool) -> bool:
    r"""`\( … \)` and `\[ … \]` in a line of text, as many models write them."""
    start = state.src[state.pos : state.pos + 2]
    if start not in BRACKETS:
        return False
    token_type, closing = BRACKETS[start]
    end = state.src.find(closing, state.pos + 2, min(state.posMax, state.pos + MAX_CHARACTERS))
    if end < 0 or not state.src[state.pos + 2 : end].strip():
        return False
    if not silent:
        state.push(token_type, "math", 0).content = state.src[state.pos + 2 : end]
    state.pos = end + 2
    return True


def _bracket_formula_block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    r"""`\[` at the start of a line up to `\]` at the end of one: its lines are no lists or headings."""
    start = state.bMarks[first] + state.tShift[first]
    if state.is_code_block(first) or not state.src.startswith("\\[", start):
        return False
    for line in range(first, min(last, first + MAX_LINES)):
        if state.isEmpty(line) or state.sCount[line] < state.blkIndent:
            return False
        end = state.skipSpacesBack(state.eMarks[line], start)
        if state.src.startswith("\\]", end - 2) and end - 2 >= start + 2:
            break
    else:
        return False
    if not silent:
        token = state.push("math_block", "math", 0)
        token.content = state.src[start + 2 : end - 2]
        token.map = [first, line + 1]
        state.line = line + 1
    return True


def brackets(parser: MarkdownIt) -> None:
    parser.inline.ruler.before("escape", "bracket_formula", _bracket_formula)
    parser.block.ruler.before("fence", "bracket_formula", _bracket_formula_block, {"alt": ["paragraph"]})
