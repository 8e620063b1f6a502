"""One renderer of Markdown, for pages and for the stream: a text becomes a list of HTML blocks, each safe by itself.

What a model writes may have been planted by someone else. So no HTML of its own passes, no link leads anywhere but to
http, https and mail, nothing remote loads by itself (an image is a link that says where it leads), and all that was
rendered goes through a sanitiser once more. No output holds an inline style: the content security policy forbids it.

Formulas in LaTeX become MathML, which browsers draw without scripts or fonts of ours.
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
from chat.rendering.highlighting import Colours, highlighted

MAX_CHARACTERS = 400_000  # of all texts of an answer; a longer text is shown as it is, and no further than this
MAX_HTML = 2_000_000  # bytes of all texts of an answer; a text with more is shown as it is. Escaped "&" is five bytes
MAX_STEPS = 30_000  # places where the parser looks what begins there, about 1 s of CPU; more is shown as it is
MAX_TOKENS = 3 * MAX_STEPS  # of blocks; a cell of a table is three
MAX_NESTING = 24  # lists and quotes in one another; what is deeper is left out of the tree by the parser
NEWLINE = re.compile(r"\r\n?")
FENCE = re.compile(r"^ *(```|~~~)", re.MULTILINE)
LINK = re.compile(r"(https?://|mailto:)[\w\[]", re.IGNORECASE)  # with a host or an address behind it
TASK_ITEM = re.compile(r"\[([ xX])\][ \t]")
LISTS, LISTS_CLOSED = {"bullet_list_open", "ordered_list_open"}, {"bullet_list_close", "ordered_list_close"}
MAX_FORMULA = 4_000  # characters
# For all formulas of an answer. The converter takes up to 12 µs a character and writes up to 30 bytes of MathML for
# one; an ordinary formula becomes ten times its length.
FORMULA_CHARACTERS, FORMULA_BYTES = 30_000, 500_000
SHORTEST_FORMULA = 10  # characters that a formula is counted as, at least: each has a cost of its own
MAX_FORMULA_LINES = 100
AROUND_BLOCK = 50  # bytes of the element that a page has around each block
REST = gettext_noop(
    "The rest is not shown here, since it is too long. Copy the answer or export the conversation to have all of it."
)
PART_OF_ENTITY = re.compile(r"&[a-z]{0,4}$")  # what `escape` writes, cut off
BRACKETS = {"\\(": ("math_inline", "\\)"), "\\[": ("math_inline_double", "\\]")}

# What of MathML passes the sanitiser: nothing that leads elsewhere or holds HTML.
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
        "a": {"href", "title", "class"},
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
class Allowance:
    """What the texts of one answer may still become: rendering one uses it up, by counts that are always the same.

    So a page and the stream, which render the same texts in the same order, show the same. Only colours also have a
    limit of time.
    """

    characters: int = MAX_CHARACTERS
    html: int = MAX_HTML  # bytes
    steps: int = MAX_STEPS
    formula_characters: int = FORMULA_CHARACTERS
    formula_bytes: int = FORMULA_BYTES
    colours: Colours = field(default_factory=Colours)

    def copy(self) -> "Allowance":
        return replace(self, colours=replace(self.colours))


@lru_cache(maxsize=512)
def _mathml(latex: str, display: Literal["inline", "block"]) -> str | None:
    try:
        return str(latex2mathml.converter.convert(latex.strip(), display=display))
    except Exception:  # the converter raises whatever its parser stumbles over
        return None


def to_mathml(latex: str, display: Literal["inline", "block"], allowance: Allowance) -> str:
    """Return a formula as MathML, or as it was written where it cannot be read or the allowance is used up."""
    source = f"<code>{escape(latex)}</code>"
    cost = max(len(latex), SHORTEST_FORMULA)
    if len(latex) > MAX_FORMULA or cost > allowance.formula_characters:
        return source
    allowance.formula_characters -= cost
    html = _mathml(latex, display)
    if html is None or len(html) > allowance.formula_bytes:
        return source
    allowance.formula_bytes -= len(html)
    return html


def _bracket_formula(state: StateInline, silent: bool) -> bool:
    r"""`\( … \)` and `\[ … \]` in a line of text, as many models write them."""
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
    r"""`\[` at the start of a line up to `\]` at the end of one: its lines are no lists or headings."""
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
    """Markup so dense that rendering it would take seconds, or give more HTML than a page can bear."""


def _count_step(state: StateBlock | StateInline, *_: Any) -> bool:
    """A rule that never matches. The parser asks it first, at each line and each character that may be markup."""
    state.env["steps"] = state.env.get("steps", 0) + 1
    if state.env["steps"] > state.env["allowance"].steps:
        raise TooMuchMarkup
    return False


class _FewTokens(list[Token]):
    """One rule may make all tokens of a block without another step, such as the 200,000 cells of a wide table."""

    def append(self, token: Token) -> None:
        if len(self) >= MAX_TOKENS:
            raise TooMuchMarkup
        super().append(token)


def _few_tokens(state: StateCore) -> None:
    state.tokens = _FewTokens()


def _task_items(state: StateCore) -> None:
    """Items that begin with `[ ]` or `[x]` get a checkbox; their list gets a class. In one pass over the tokens."""
    lists: list[Token] = []
    for item, paragraph, inline in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        if item.type in LISTS:
            lists.append(item)
        elif item.type in LISTS_CLOSED:
            lists.pop()
        if (item.type, paragraph.type, inline.type) != ("list_item_open", "paragraph_open", "inline"):
            continue
        found = TASK_ITEM.match(inline.content)
        if found is None or not inline.children or not inline.children[0].content.startswith(found[0]):
            continue
        checked = ' checked="checked"' if found[1] in "xX" else ""
        checkbox = Token("html_inline", "", 0)
        checkbox.content = f'<input class="task-list-item-checkbox"{checked} disabled="disabled" type="checkbox">'
        inline.children[0].content = inline.children[0].content[len("[ ]") :]
        inline.children.insert(0, checkbox)
        item.attrSet("class", "task-list-item")
        lists[-1].attrSet("class", "contains-task-list")


def _brackets(parser: MarkdownIt) -> None:
    parser.inline.ruler.before("escape", "bracket_formula", _bracket_formula)
    parser.block.ruler.before("fence", "bracket_formula", _bracket_formula_block, {"alt": ["paragraph"]})


class Renderer(RendererHTML):
    """Methods are named after the tokens of markdown-it that they render.

    The HTML is counted while it grows: one definition of a long link, or the title of one source, may be written out
    thousands of times.
    """

    def render(self, tokens: Sequence[Token], options: OptionsDict, env: Env) -> str:
        return "".join(self._counted(tokens, options, env))

    def renderInline(self, tokens: Sequence[Token], options: OptionsDict, env: Env) -> str:
        return "".join(self._counted(tokens, options, env))

    def _counted(self, tokens: Sequence[Token], options: OptionsDict, env: Env) -> Iterator[str]:
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
            else highlighted(token.content, language, env["allowance"].colours)
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
    """`code` is HTML."""
    label = f'<span class="lang">{escape(language or "text")}</span>'
    button = f'<button type="button" class="copy" data-copy>{_("Copy")}</button>'
    head = f'<div class="code-head">{label}{button}</div>'
    kind = "code diagram-source" if language == "mermaid" else "code"  # scripts draw it
    return f'<div class="{kind}">{head}<pre tabindex="0"><code>{code}</code></pre></div>'


def _host(source: str) -> str:
    try:
        return urlsplit(source).hostname or "unknown host"
    except ValueError:  # such as an unclosed IPv6 address
        return "unknown host"


class Parser(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        return LINK.match(url) is not None


def _parser() -> Parser:
    parser = Parser("commonmark", {"html": False, "maxNesting": MAX_NESTING}, renderer_cls=Renderer)
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.before("block", "few_tokens", _few_tokens)
    parser.core.ruler.after("inline", "task_items", _task_items)
    # No digits beside a dollar sign: "$5 and $6" is money.
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
        parser.add_render_rule(name, getattr(Renderer, name))  # the plugin brings its own
    return parser


PARSER = _parser()


def _normal(text: str) -> str:
    """Line ends as the parser counts them, and nothing that cannot be written as UTF-8 (a lone surrogate)."""
    return NEWLINE.sub("\n", text).encode("utf-8", "replace").decode("utf-8")


class _Block(NamedTuple):
    """A top-level block: its first token and its HTML."""

    token: Token
    html: str


def _blocks(text: str, env: Env, *, plain_end: bool = False) -> Iterator[_Block]:
    """Yield the top-level blocks of a normalised text. `env["allowance"]` is used up; raises `TooMuchMarkup`.

    `plain_end`: no highlighting in the last block, which is about to be rendered many times.
    """
    tokens = PARSER.parse(text, env)
    allowance: Allowance = env["allowance"]
    start = 0
    for end, token in enumerate(tokens, 1):
        if token.level or token.nesting > 0:
            continue
        env["plain"], env["written"] = plain_end and end == len(tokens), 0
        html = CLEANER.clean(PARSER.renderer.render(tokens[start:end], PARSER.options, env)).strip("\n")
        size = len(html.encode()) + AROUND_BLOCK
        if size > allowance.html:
            raise TooMuchMarkup
        allowance.html -= size
        yield _Block(tokens[start], html)
        start = end


def tokens_of(text: str, sources: Mapping[int, references.Source]) -> list[Token]:
    """What the parser makes of a text, its citations as `render` counts them; nothing of one that is shown as it is."""
    try:
        env = {"sources": sources, "allowance": Allowance()}
        return PARSER.parse(_normal(text), env) if len(text) <= MAX_CHARACTERS else []
    except TooMuchMarkup:
        return []


def render(
    text: str,
    sources: Mapping[int, references.Source] | None = None,
    doubts: Mapping[int, str] = MappingProxyType({}),
    allowance: Allowance | None = None,
) -> list[str]:
    """Return the HTML of each top-level block, each sanitised by itself. Never raises.

    `sources` are what its citations may lead to, by number; `doubts`, by the number of a citation in the text (from
    0), where the sign behind one leads whose passage does not carry its sentence. `allowance` is that of the answer
    whose texts are rendered one after the other, and is used up. A text that is over it is shown as it is, and cut off
    where even that is too much.
    """
    text = _normal(text)
    allowance = Allowance() if allowance is None else allowance
    if len(text) > allowance.characters:
        return [_as_it_is(text, allowance)]
    trial = allowance.copy()
    env: Env = {"sources": sources, "doubts": doubts, "allowance": trial}
    try:
        blocks = [block.html for block in _blocks(text, env)]
    except TooMuchMarkup:
        return [_as_it_is(text, allowance)]
    allowance.characters -= len(text)
    allowance.html, allowance.steps = trial.html, allowance.steps - env.get("steps", 0)
    allowance.formula_characters, allowance.formula_bytes = trial.formula_characters, trial.formula_bytes
    allowance.colours = trial.colours
    return blocks


def _as_it_is(text: str, allowance: Allowance) -> str:
    """Return the text as it was written, as far as the allowance reaches, which it uses up."""
    html = escape(text[: allowance.characters], quote=False)
    data = html.encode()
    whole = len(text) <= allowance.characters and len(data) <= allowance.html
    if len(data) > allowance.html:
        html = PART_OF_ENTITY.sub("", data[: allowance.html].decode(errors="ignore"))
    allowance.characters = max(0, allowance.characters - len(text))
    allowance.html = max(0, allowance.html - len(data))
    if whole:
        return f"<pre>{html}</pre>"
    return f"<pre>{html}</pre><p>{_(REST)}</p>"


class BlockStream:
    """Renders a growing text, and tells which blocks changed: only the unfinished tail is rendered again.

    The tail starts at the last top-level block; all before it is finished. A tail longer than `LONG_TAIL` is rendered
    only when it has grown by a sixteenth (or by less, where a fence may have closed), so that the work stays linear in
    the text's length, and one of dense markup only when it has doubled, so that all of it costs about twice `render`.
    In between `push` returns nothing, and who shows the text appends the raw piece until the next rendering.
    What cannot be known early (a link's definition further down) is corrected by `finish`.
    """

    LONG_TAIL = 2_000
    CHEAP, DENSE = 100, 1_000  # steps
    GROWTH, GROWTH_TO_FENCE, GROWTH_OF_DENSE = 16, 64, 2  # the part of a tail that is new when it is rendered

    def __init__(
        self, sources: Mapping[int, references.Source] | None = None, allowance: Allowance | None = None
    ) -> None:
        self._sources = sources
        self._allowance = Allowance() if allowance is None else allowance  # of the answer, used up by `finish`
        self._left = self._allowance.copy()  # below the finished blocks
        self._pieces: list[str] = []
        self._tail = ""
        self._rendered = self._steps = 0  # characters of the tail at its last rendering, and what that took
        self._finished = 0  # blocks before the tail
        self._shown: list[str] = []
        self._references: Env = {}
        self.count = 0
        self._characters = 0
        self._over = False  # the allowance

    @property
    def tail_size(self) -> int:
        """Characters that the next rendering has to look at."""
        return len(self._tail)

    def push(self, delta: str) -> list[tuple[int, str]]:
        """The blocks whose HTML changed, as (index, HTML). An empty HTML takes back a block that was shown."""
        self._pieces.append(delta)
        self._tail += delta
        self._characters += len(delta)
        if not delta or self._over or self._characters > self._allowance.characters or not self._due():
            return []
        self._tail = _normal(self._tail)
        left = self._left.copy()
        env: Env = {"references": dict(self._references), "sources": self._sources, "allowance": left}
        blocks: list[_Block] = []
        before = after = left.copy()  # what the last block may use, and what it leaves
        try:
            for block in _blocks(self._tail, env, plain_end=len(self._tail) > self.LONG_TAIL):
                blocks.append(block)
                before, after = after, left.copy()
        except TooMuchMarkup:
            self._over = True  # the end shows it as it is
            return []
        changed = list(self._place(self._finished, [block.html for block in blocks]))
        if len(blocks) > 1:
            self._advance(len(blocks) - 1, (blocks[-1].token.map or [0])[0], env["references"])
            self._left = before
        self._rendered, self._steps = len(self._tail), env.get("steps", 0)
        return changed

    def finish(self) -> list[tuple[int, str]]:
        """What has to change so that the blocks shown are `render` of the whole text; `count` is their final number."""
        blocks = render("".join(self._pieces), self._sources, allowance=self._allowance)
        return list(self._place(0, blocks))

    def _due(self) -> bool:
        size = len(self._tail)
        new, dense = size - self._rendered, self._steps > self.DENSE
        if size <= self.LONG_TAIL or new > size // (self.GROWTH_OF_DENSE if dense else self.GROWTH):
            return True
        if dense or (self._steps > self.CHEAP and new <= size // self.GROWTH_TO_FENCE):
            return False
        return FENCE.search(self._tail, self._tail.rfind("\n", 0, self._rendered) + 1) is not None

    def _place(self, first: int, blocks: list[str]) -> Iterator[tuple[int, str]]:
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
        """Takes the first `blocks` blocks out of the tail; the next one starts at `line`."""
        self._finished += blocks
        for label, reference in references.items():
            if reference["map"][0] < line:
                self._references.setdefault(label, reference)
        self._tail = self._tail.split("\n", line)[line]
