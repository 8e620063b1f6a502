"""Render Markdown to HTML, for pages and for the stream: a text becomes a list of blocks, each safe by itself.

A model's text may contain an attack that someone planted. So HTML in the text is escaped, links lead only to http,
https and mail addresses, nothing remote loads by itself (an image becomes a link that names its host), and the result
passes a sanitiser. No output has inline styles, since the content security policy forbids them.

1. `render` renders a whole text within the `RenderAllowance` of its answer. Text beyond it is shown as written.
2. `BlockStream` renders a growing text and returns the blocks that changed. Its final blocks equal those of `render`.

Formulas in LaTeX become MathML, which browsers draw without our scripts or fonts.
"""

import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from html import escape
from types import MappingProxyType
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import latex2mathml.converter
import nh3
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from mdit_py_plugins.dollarmath import dollarmath_plugin

from chat.rendering import references
from chat.rendering.highlighting import Colours, highlight

# Limits for all texts of one answer together. A text that exceeds one is shown as written.
MAX_CHARACTERS = 400_000  # also the most that is shown as written
MAX_HTML = 2_000_000  # bytes; an escaped "&" takes five
MAX_STEPS = 30_000  # places where the parser tries its rules; about 1 s of CPU
# Limits for each text.
MAX_TOKENS = 3 * MAX_STEPS  # block tokens; a table cell takes three
MAX_NESTING = 24  # levels of lists and quotes; the parser drops deeper blocks
NEWLINE = re.compile(r"\r\n?")
FENCE = re.compile(r"^ *(```|~~~)", re.MULTILINE)
LINK = re.compile(r"(https?://|mailto:)[\w\[]", re.IGNORECASE)  # followed by a host or an address
TASK_ITEM = re.compile(r"\[([ xX])\][ \t]")
LIST_STARTS = {"bullet_list_open", "ordered_list_open"}
LIST_ENDS = {"bullet_list_close", "ordered_list_close"}
MAX_FORMULA = 4_000  # characters
# Limits for all formulas of an answer together. The converter takes up to 12 µs per character and writes up to 30 bytes
# of MathML per character; an ordinary formula becomes ten times its length.
MAX_FORMULA_CHARACTERS = 30_000
MAX_FORMULA_BYTES = 500_000
MIN_FORMULA_COST = 10  # characters; a shorter formula counts as this long, since every formula has a fixed cost
MAX_FORMULA_LINES = 100
WRAPPER_BYTES = 50  # bytes of the element that wraps each block on a page
REST_AS_TEXT = gettext_noop(
    "The rest is too long to be shown here. Copy the answer or export the conversation to get all of it."
)
PART_OF_ENTITY = re.compile(r"&[a-z]{0,4}$")  # the beginning of an entity that `escape` wrote
BRACKETS = {"\\(": ("math_inline", "\\)"), "\\[": ("math_inline_double", "\\]")}

# The MathML that passes the sanitiser. It includes no element that can hold a link or HTML.
MATH_TAGS = {
    *("math", "mrow", "mi", "mo", "mn", "ms", "mtext", "mspace", "mstyle", "mpadded", "mphantom", "menclose", "merror"),
    *("mfrac", "msqrt", "mroot", "msub", "msup", "msubsup", "munder", "mover", "munderover", "mmultiscripts"),
    *("mprescripts", "mtable", "mtr", "mtd", "mlabeledtr"),
}
MATH_ATTRIBUTES = {
    *("display", "displaystyle", "scriptlevel", "mathvariant", "mathcolor", "linethickness", "notation"),
    *("stretchy", "symmetric", "largeop", "movablelimits", "fence", "form", "separator", "accent", "accentunder"),
    *("lspace", "rspace", "width", "height", "depth", "minsize", "maxsize"),
    *("columnalign", "columnspacing", "rowspacing", "columnlines", "rowlines"),
}

Env = MutableMapping[str, Any]

CLEANER = nh3.Cleaner(
    tags={
        *("p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "hr", "br", "pre", "div"),
        *("em", "strong", "s", "code", "a", "span", "button", "input"),
        *("table", "thead", "tbody", "tr", "th", "td"),
        *MATH_TAGS,
    },
    attributes={
        "a": {"href", "title", "class", "data-place"},
        "ol": {"start", "class"},
        "button": {"class", "data-copy"},
        "input": {"class", "checked", "disabled"},
        **{tag: {"class"} for tag in ("span", "div", "ul", "li", "th", "td", "code")},
        **dict.fromkeys(MATH_TAGS, MATH_ATTRIBUTES),
    },
    tag_attribute_values={"button": {"type": {"button"}}, "input": {"type": {"checkbox"}}, "pre": {"tabindex": {"0"}}},
    set_tag_attribute_values={"a": {"target": "_blank"}},
    url_schemes={"http", "https", "mailto"},
    link_rel="noopener noreferrer nofollow",
)


@dataclass(slots=True)
class RenderAllowance:
    """The limits left for the texts of one answer. Rendering a text uses them up.

    The counts are deterministic. A page and the stream render the same texts in the same order, so both show the same
    result. Only colours also have a time limit.
    """

    characters: int = MAX_CHARACTERS
    html: int = MAX_HTML  # bytes
    steps: int = MAX_STEPS
    formula_characters: int = MAX_FORMULA_CHARACTERS
    formula_bytes: int = MAX_FORMULA_BYTES
    colours: Colours = field(default_factory=Colours)

    def copy(self) -> "RenderAllowance":
        """Return an independent copy."""
        return replace(self, colours=replace(self.colours))


@lru_cache(maxsize=512)
def _mathml(latex: str, display: Literal["inline", "block"]) -> str | None:
    try:
        return str(latex2mathml.converter.convert(latex.strip(), display=display))
    except Exception:  # the converter raises many kinds of errors for a formula that it cannot parse
        return None


def to_mathml(latex: str, display: Literal["inline", "block"], allowance: RenderAllowance) -> str:
    """Return a formula as MathML, or its escaped source if it cannot be parsed or the allowance is used up."""
    source = f"<code>{escape(latex)}</code>"
    cost = max(len(latex), MIN_FORMULA_COST)
    if len(latex) > MAX_FORMULA or cost > allowance.formula_characters:
        return source
    allowance.formula_characters -= cost
    html = _mathml(latex, display)
    if html is None or len(html) > allowance.formula_bytes:
        return source
    allowance.formula_bytes -= len(html)
    return html


def _bracket_formula(state: StateInline, silent: bool) -> bool:
    r"""Parse formulas in `\( … \)` and `\[ … \]` within a line. Many models write this notation."""
    start = state.src[state.pos : state.pos + 2]
    if start not in BRACKETS:
        return False
    token_type, closing = BRACKETS[start]
    end = state.src.find(closing, state.pos + 2, min(state.posMax, state.pos + MAX_FORMULA))
    if end < 0 or not state.src[state.pos + 2 : end].strip():
        return False
    if not silent:
        state.push(token_type, "math", 0).content = state.src[state.pos + 2 : end]
    state.pos = end + 2
    return True


def _bracket_formula_block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    r"""Parse a formula from `\[` at the start of a line to `\]` at the end of a line.

    The lines between are not parsed as lists or headings.
    """
    start = state.bMarks[first] + state.tShift[first]
    if state.is_code_block(first) or not state.src.startswith("\\[", start):
        return False
    for line in range(first, min(last, first + MAX_FORMULA_LINES)):
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


class TooMuchMarkup(Exception):
    """Markup so dense that rendering it would take seconds or make more HTML than a page can show."""


def _count_step(state: StateBlock | StateInline, *_: Any) -> bool:
    """Count a step of the parser. Raises `TooMuchMarkup`.

    This rule never matches. The parser tries it first, at each line and at each possible markup.
    """
    state.env["steps"] = state.env.get("steps", 0) + 1
    if state.env["steps"] > state.env["allowance"].steps:
        raise TooMuchMarkup
    return False


class _BoundedTokens(list[Token]):
    """A list of tokens with a limit.

    One rule may make all tokens of a block in a single step, such as the 200,000 cells of a wide table.
    """

    def append(self, token: Token) -> None:
        if len(self) >= MAX_TOKENS:
            raise TooMuchMarkup
        super().append(token)


def _bound_tokens(state: StateCore) -> None:
    state.tokens = _BoundedTokens()


def _task_items(state: StateCore) -> None:
    """Give items that begin with `[ ]` or `[x]` a checkbox, and their list a class."""
    lists: list[Token] = []
    for item, paragraph, inline in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        if item.type in LIST_STARTS:
            lists.append(item)
        elif item.type in LIST_ENDS:
            lists.pop()
        if (item.type, paragraph.type, inline.type) != ("list_item_open", "paragraph_open", "inline"):
            continue
        match = TASK_ITEM.match(inline.content)
        if match is None or not inline.children or not inline.children[0].content.startswith(match[0]):
            continue
        checked = ' checked="checked"' if match[1] in "xX" else ""
        checkbox = Token("html_inline", "", 0)
        checkbox.content = f'<input class="task-list-item-checkbox"{checked} disabled="disabled" type="checkbox">'
        inline.children[0].content = inline.children[0].content[len("[ ]") :]
        inline.children.insert(0, checkbox)
        item.attrSet("class", "task-list-item")
        lists[-1].attrSet("class", "contains-task-list")


def _brackets(parser: MarkdownIt) -> None:
    parser.inline.ruler.before("escape", "bracket_formula", _bracket_formula)
    parser.block.ruler.before("fence", "bracket_formula", _bracket_formula_block, {"alt": ["paragraph"]})


class MarkdownRenderer(RendererHTML):
    """Renders tokens of markdown-it. Its methods have the names of the tokens.

    It counts the HTML while it grows, since a long link that is defined once, or the title of a source, may appear
    thousands of times.
    """

    def render(self, tokens: Sequence[Token], options: OptionsDict, env: Env) -> str:
        return "".join(self._count_html(tokens, options, env))

    def renderInline(self, tokens: Sequence[Token], options: OptionsDict, env: Env) -> str:
        return "".join(self._count_html(tokens, options, env))

    def _count_html(self, tokens: Sequence[Token], options: OptionsDict, env: Env) -> Iterator[str]:
        for index, token in enumerate(tokens):
            if token.type == "inline":
                yield self.renderInline(token.children or (), options, env)
                continue
            rule = self.rules.get(token.type, self.renderToken)
            html = rule(tokens, index, options, env)
            env["written"] = env.get("written", 0) + len(html)
            if env["written"] > env["allowance"].html:
                raise TooMuchMarkup
            yield html

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        token = tokens[idx]
        language = (token.info.split() or [""])[0][:40]
        plain = env.get("plain", False)
        code = (
            escape(token.content, quote=False)
            if plain
            else highlight(token.content, language, env["allowance"].colours)
        )
        return _code_block(code, language)

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return _code_block(escape(tokens[idx].content, quote=False), "")

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        token = tokens[idx]
        source = str(token.attrGet("src") or "")
        name = self.renderInlineAsText(token.children, options, env) or "without a description"
        label = f"Image: {escape(name)} — {escape(_host(source))}"
        if env.get("in_link"):  # HTML has no link inside a link
            return f'<span class="image-link">{label}</span>'
        return f'<a class="image-link" href="{escape(source)}">{label}</a>'

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        env["in_link"] = True
        return self.renderToken(tokens, idx, options, env)

    def link_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        env["in_link"] = False
        return self.renderToken(tokens, idx, options, env)

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return '<div class="table"><table>'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return "</table></div>"

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return _cell(tokens[idx])

    td_open = th_open

    def math_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return to_mathml(tokens[idx].content, "inline", env["allowance"])

    def math_inline_double(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return f'<span class="formula">{to_mathml(tokens[idx].content, "block", env["allowance"])}</span>'

    def math_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return f'<div class="formula">{to_mathml(tokens[idx].content, "block", env["allowance"])}</div>'


def _cell(token: Token) -> str:
    style = str(token.attrGet("style") or "")
    align = style.removeprefix("text-align:") if style else ""
    return f'<{token.tag} class="{align}">' if align else f"<{token.tag}>"


def _code_block(code: str, language: str) -> str:
    """Return a code block with its head. `code` is HTML."""
    label = f'<span class="lang">{escape(language or "text")}</span>'
    button = f'<button type="button" class="copy" data-copy>{_("Copy")}</button>'
    head = f'<div class="code-head">{label}{button}</div>'
    kind = "code diagram-source" if language == "mermaid" else "code"  # a script draws the diagram
    return f'<div class="{kind}">{head}<pre tabindex="0"><code>{code}</code></pre></div>'


def _host(source: str) -> str:
    try:
        return urlsplit(source).hostname or "unknown host"
    except ValueError:  # such as an unclosed IPv6 address
        return "unknown host"


class MarkdownParser(MarkdownIt):
    """A parser that accepts only links that match `LINK`."""

    def validateLink(self, url: str) -> bool:
        return LINK.match(url) is not None


def _parser() -> MarkdownParser:
    parser = MarkdownParser("commonmark", {"html": False, "maxNesting": MAX_NESTING}, renderer_cls=MarkdownRenderer)
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.before("block", "bound_tokens", _bound_tokens)
    parser.core.ruler.after("inline", "task_items", _task_items)
    # No digits next to a dollar sign: "$5 and $6" is money.
    parser.use(
        dollarmath_plugin,
        allow_space=False,
        allow_digits=False,
        allow_labels=False,
        allow_blank_lines=False,
        double_inline=True,
    )
    parser.use(_brackets)
    parser.inline.ruler.before("link", "citation", references.citation_rule)
    parser.inline.ruler.before("link", "mention", references.mention_rule)
    parser.inline.ruler.before("text", "count_step", _count_step)
    parser.block.ruler.before("table", "count_step", _count_step, {"alt": ["paragraph", "reference", "blockquote"]})
    for name in ("math_inline", "math_inline_double", "math_block"):
        parser.add_render_rule(name, getattr(MarkdownRenderer, name))  # replaces the plugin's own rule
    return parser


PARSER = _parser()


def _normalise(text: str) -> str:
    """Return the text with `\\n` as line end. Lone surrogates, which UTF-8 cannot encode, become “?”."""
    return NEWLINE.sub("\n", text).encode("utf-8", "replace").decode("utf-8")


class _Block(NamedTuple):
    """A top-level block: its first token and its HTML."""

    token: Token
    html: str


def _blocks(text: str, env: Env, *, plain_end: bool = False) -> Iterator[_Block]:
    """Yield the top-level blocks of a normalised text. Consumes `env["allowance"]`. Raises `TooMuchMarkup`.

    `plain_end`: leave the last block without colours, since it will be rendered many times.
    """
    tokens = PARSER.parse(text, env)
    allowance: RenderAllowance = env["allowance"]
    start = 0
    for end, token in enumerate(tokens, 1):
        if token.level or token.nesting > 0:
            continue
        env["plain"] = plain_end and end == len(tokens)
        env["written"] = 0
        html = CLEANER.clean(PARSER.renderer.render(tokens[start:end], PARSER.options, env)).strip("\n")
        size = len(html.encode()) + WRAPPER_BYTES
        if size > allowance.html:
            raise TooMuchMarkup
        allowance.html -= size
        yield _Block(tokens[start], html)
        start = end


def parse_tokens(text: str, sources: Mapping[int, references.Source]) -> list[Token]:
    """Return the parser's tokens of a text; none if `render` shows it as written. Citations count as in `render`."""
    try:
        env = {"sources": sources, "allowance": RenderAllowance()}
        return PARSER.parse(_normalise(text), env) if len(text) <= MAX_CHARACTERS else []
    except TooMuchMarkup:
        return []


def render(
    text: str,
    sources: Mapping[int, references.Source] | None = None,
    doubts: Mapping[int, str] = MappingProxyType({}),
    allowance: RenderAllowance | None = None,
    places: Mapping[tuple[int, int], references.PlaceLink] = MappingProxyType({}),
) -> list[str]:
    """Return the HTML of each top-level block, each sanitised by itself. Never raises.

    `sources` are the documents to which citations may link, by number. `doubts` are the addresses of the pages that
    explain doubts, by the number of the citation in the text, from 0. `places` are the links to the sentences that
    citations lead to, by the number of the citation and of the document. All texts of an answer share one `allowance`,
    and this call consumes it. A text that exceeds the allowance is shown as written, and truncated if that is too long.
    """
    text = _normalise(text)
    allowance = RenderAllowance() if allowance is None else allowance
    if len(text) > allowance.characters:
        return [_show_as_written(text, allowance)]
    trial = allowance.copy()
    env: Env = {"sources": sources, "doubts": doubts, "places": places, "allowance": trial}
    try:
        blocks = [block.html for block in _blocks(text, env)]
    except TooMuchMarkup:
        return [_show_as_written(text, allowance)]
    allowance.characters -= len(text)
    allowance.html = trial.html
    allowance.steps -= env.get("steps", 0)
    allowance.formula_characters = trial.formula_characters
    allowance.formula_bytes = trial.formula_bytes
    allowance.colours = trial.colours
    return blocks


def _show_as_written(text: str, allowance: RenderAllowance) -> str:
    """Return as much of the text as the allowance permits, as written. Consumes the allowance."""
    html = escape(text[: allowance.characters], quote=False)
    data = html.encode()
    whole = len(text) <= allowance.characters and len(data) <= allowance.html
    if len(data) > allowance.html:
        html = PART_OF_ENTITY.sub("", data[: allowance.html].decode(errors="ignore"))
    allowance.characters = max(0, allowance.characters - len(text))
    allowance.html = max(0, allowance.html - len(data))
    if whole:
        return f"<pre>{html}</pre>"
    return f"<pre>{html}</pre><p>{_(REST_AS_TEXT)}</p>"


class BlockStream:
    """Renders a growing text and returns the blocks that changed. Only the unfinished tail is rendered again.

    The tail starts at the last top-level block; the blocks before it are finished. For a long tail, `push` skips some
    renderings and returns an empty list. The page appends the raw text until the next rendering:

    * A tail longer than `LONG_TAIL` is rendered when a sixteenth of it is new, or less if a fence may have closed. So
      the work is linear in the text's length.
    * A tail of dense markup is rendered when it has doubled. So all renderings cost about twice `render`.

    `finish` corrects blocks that depend on later text, such as the definition of a link.
    """

    LONG_TAIL = 2_000  # characters
    # Steps of the last rendering. Up to CHEAP, a possible end of a fence is rendered at once. Above DENSE, the markup
    # is dense.
    CHEAP = 100
    DENSE = 1_000
    # A tail is rendered when more than 1/GROWTH of it is new; other fractions apply to a possible fence, dense markup.
    GROWTH = 16
    GROWTH_TO_FENCE = 64
    GROWTH_OF_DENSE = 2

    def __init__(
        self, sources: Mapping[int, references.Source] | None = None, allowance: RenderAllowance | None = None
    ) -> None:
        self._sources = sources
        self._allowance = RenderAllowance() if allowance is None else allowance  # of the answer; `finish` consumes it
        self._left = self._allowance.copy()  # the allowance that the finished blocks have not used
        self._pieces: list[str] = []
        self._tail = ""
        self._rendered = 0  # characters of the tail at its last rendering
        self._steps = 0  # steps of that rendering
        self._finished = 0  # number of blocks before the tail
        self._shown: list[str] = []
        self._references: Env = {}
        self.count = 0
        self._characters = 0
        self._over = False  # the allowance is exceeded

    @property
    def tail_size(self) -> int:
        """The characters that the next rendering has to parse."""
        return len(self._tail)

    def push(self, delta: str) -> list[tuple[int, str]]:
        """Append `delta`. Return the blocks whose HTML changed, as (index, HTML); empty HTML removes a block."""
        self._pieces.append(delta)
        self._tail += delta
        self._characters += len(delta)
        if not delta or self._over or self._characters > self._allowance.characters or not self._is_rendering_due():
            return []
        self._tail = _normalise(self._tail)
        left = self._left.copy()
        env: Env = {"references": dict(self._references), "sources": self._sources, "allowance": left}
        blocks: list[_Block] = []
        before = after = left.copy()  # the allowance before and after the last block
        try:
            for block in _blocks(self._tail, env, plain_end=len(self._tail) > self.LONG_TAIL):
                blocks.append(block)
                before = after
                after = left.copy()
        except TooMuchMarkup:
            self._over = True  # `finish` shows the text as written
            return []
        changed = list(self._replace_blocks(self._finished, [block.html for block in blocks]))
        if len(blocks) > 1:
            self._advance(len(blocks) - 1, (blocks[-1].token.map or [0])[0], env["references"])
            self._left = before
        self._rendered = len(self._tail)
        self._steps = env.get("steps", 0)
        return changed

    def finish(self) -> list[tuple[int, str]]:
        """Return the changes that turn the shown blocks into those of `render`. `count` is then their final number."""
        blocks = render("".join(self._pieces), self._sources, allowance=self._allowance)
        return list(self._replace_blocks(0, blocks))

    def _is_rendering_due(self) -> bool:
        """Return whether to render the tail now."""
        size = len(self._tail)
        new = size - self._rendered
        dense = self._steps > self.DENSE
        if size <= self.LONG_TAIL or new > size // (self.GROWTH_OF_DENSE if dense else self.GROWTH):
            return True
        if dense or (self._steps > self.CHEAP and new <= size // self.GROWTH_TO_FENCE):
            return False
        return FENCE.search(self._tail, self._tail.rfind("\n", 0, self._rendered) + 1) is not None

    def _replace_blocks(self, first: int, blocks: list[str]) -> Iterator[tuple[int, str]]:
        """Replace the shown blocks from the index `first` on. Yield the blocks that changed."""
        self.count = first + len(blocks)
        blocks = blocks + [""] * (len(self._shown) - first - len(blocks))
        for index, html in enumerate(blocks, first):
            if index == len(self._shown):
                self._shown.append(html)
            elif self._shown[index] == html:
                continue
            self._shown[index] = html
            yield index, html

    def _advance(self, blocks: int, line: int, references: Env) -> None:
        """Remove the first `blocks` blocks from the tail; the next block starts at `line`."""
        self._finished += blocks
        for label, reference in references.items():
            if reference["map"][0] < line:
                self._references.setdefault(label, reference)
        self._tail = self._tail.split("\n", line)[line]
