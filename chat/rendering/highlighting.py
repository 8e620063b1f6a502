"""Colour code blocks with the CSS classes of Pygments, at a bounded cost.

A lexer is a list of regular expressions, and hostile code may make them slow. The time is checked only between two
matches, and the code after the limit has no colours. So a language is supported only if its longest single match took
less than 20 ms of CPU. This was measured with 60 hostile patterns of 20,000 characters.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html import escape
from time import thread_time

from pygments import format as formatted
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_all_lexers, get_lexer_by_name
from pygments.token import Text, _TokenType

MAX_CHARACTERS = 20_000  # in one block; a longer block has no colours
BLOCK_SECONDS = 0.25  # CPU seconds for one block; ordinary code of the maximum length takes 0.05
ANSWER_SECONDS = 0.5  # CPU seconds for all blocks of one answer
# Spans in all blocks of one answer. Ordinary code has one span for every four characters. A span adds 25 bytes,
# so a row of brackets would become ten or twenty times as long.
MAX_SPANS = 20_000

# The first alias in Pygments of each supported language. Its other aliases work, too.
LANGUAGES = {
    *("abap", "asm", "bash", "batch", "c", "clojure", "cmake", "cobol", "common-lisp", "cpp", "crystal"),
    *("csharp", "css", "d", "dart", "diff", "docker", "elixir", "elm", "erlang", "fish", "fortran", "fsharp"),
    *("go", "graphql", "groovy", "haskell", "html", "http", "java", "javascript", "jinja", "json", "jsx"),
    *("julia", "kotlin", "latex", "less", "lua", "make", "markdown", "nasm", "nginx", "nim", "nix"),
    *("objective-c", "octave", "perl", "php", "postgresql", "powershell", "prolog", "properties", "protobuf"),
    *("python", "r", "racket", "rst", "ruby", "rust", "scala", "scheme", "scss", "sml", "solidity", "sql"),
    *("swift", "tcsh", "terraform", "toml", "tsx", "typescript", "vbnet", "vim", "xml", "yaml", "zig"),
}
# Languages whose own lexer hostile code can slow down, with the related language whose lexer is used instead.
SUBSTITUTE_LEXERS = {
    **dict.fromkeys(("ocaml", "ml"), "sml"),
    "matlab": "octave",
    **dict.fromkeys(("console", "shell-session", "terminal"), "bash"),
    **dict.fromkeys(("ini", "cfg", "dosini", "conf"), "properties"),
    "jsonc": "json",
}

_FORMATTER: HtmlFormatter[str] = HtmlFormatter(nowrap=True)


@dataclass(slots=True)
class Colours:
    """The remaining budget for the colours of one answer: CPU seconds and spans."""

    seconds: float = ANSWER_SECONDS
    spans: int = MAX_SPANS


def highlight(code: str, language: str, colours: Colours) -> str:
    """Return the code as HTML, coloured if the language is supported and `colours` has budget left.

    Subtracts the cost from `colours`.
    """
    lexer = None if len(code) > MAX_CHARACTERS else _lexer(language.lower())
    if lexer is None or colours.seconds <= 0 or colours.spans <= 0:
        return escape(code, quote=False)
    started = thread_time()
    html = formatted(_tokens(lexer, code, started + min(BLOCK_SECONDS, colours.seconds), colours), _FORMATTER)
    colours.seconds -= thread_time() - started
    return html


def _tokens(lexer: Lexer, code: str, until: float, colours: Colours) -> "Iterator[tuple[_TokenType, str]]":
    """Yield the lexer's tokens until the limit, then the rest as plain text."""
    consumed = 0
    for kind, text in lexer.get_tokens(code):
        yield kind, text
        consumed += len(text)
        colours.spans -= 1 + text.count("\n")  # each line of a token is a span of its own
        if colours.spans <= 0 or thread_time() > until:
            yield Text, code[consumed:]
            return


@cache
def _lexer_names() -> dict[str, str]:
    """Return the name of the lexer for each supported alias of a language."""
    names = (each[1] for each in get_all_lexers(plugins=False))
    supported = {alias: aliases[0] for aliases in names if not LANGUAGES.isdisjoint(aliases) for alias in aliases}
    return {**supported, **SUBSTITUTE_LEXERS}


@cache
def _load_lexer(name: str) -> Lexer:
    return get_lexer_by_name(name, stripnl=False, ensurenl=False)


def _lexer(language: str) -> Lexer | None:
    name = _lexer_names().get(language)
    return None if name is None else _load_lexer(name)
