"""Search the sections of the guide for words and beginnings of words, ignoring capitals and accents."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from config.help.guide import GuidePage, GuidePlace, pages
from config.help.rendering import PARSER, anchor_of, text_of

WORD = re.compile(r"\w+")
MAX_HITS = 20  # hits
EXCERPT_LENGTH = 200  # characters
DECISIONS_PREFIX = "decisions/"  # decision records count half: readers rarely look for them
TITLE_POINTS = 6  # points for a word in the title
HEADING_POINTS = 4  # points for a word in the heading
MAX_IN_TEXT = 3  # occurrences in the text that count, one point each


@dataclass(frozen=True, slots=True)
class GuideSection:
    """A section of a page: a heading and its text. `words` has its folded words, in the order of the text."""

    page: GuidePage
    heading: str
    place: GuidePlace
    text: str
    title_words: tuple[str, ...]
    heading_words: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def excerpt(self) -> str:
        return self.text if len(self.text) <= EXCERPT_LENGTH else self.text[:EXCERPT_LENGTH].rsplit(" ", 1)[0] + " …"


def find(query: str, language: str) -> list[GuideSection]:
    """Return the sections with words that begin with each word of the query, best first."""
    beginnings = _words(query)
    ranked = [(_score(section, beginnings), section) for section in _sections(language)] if beginnings else []
    return [section for score, section in sorted(ranked, key=lambda each: -each[0]) if score][:MAX_HITS]


def _score(section: GuideSection, beginnings: tuple[str, ...]) -> int:
    scores = [
        TITLE_POINTS * _count(section.title_words, word)
        + HEADING_POINTS * _count(section.heading_words, word)
        + min(MAX_IN_TEXT, _count(section.words, word))
        for word in beginnings
    ]
    return sum(scores) // (1 + section.page.path.startswith(DECISIONS_PREFIX)) if all(scores) else 0


def _count(words: tuple[str, ...], beginning: str) -> int:
    return sum(word.startswith(beginning) for word in words)


@cache
def _sections(language: str) -> tuple[GuideSection, ...]:
    return tuple(section for page in pages(language) for section in _sections_of(page))


def _sections_of(page: GuidePage) -> Iterator[GuideSection]:
    heading = page.title
    texts: list[str] = []
    tokens = PARSER.parse(page.text)
    for index, token in enumerate(tokens):
        if token.type == "heading_open" and token.tag != "h1":
            yield _section(page, heading, texts)
            heading = text_of(tokens[index + 1])
            texts = []
        elif token.type == "inline" and tokens[index - 1].type != "heading_open":
            texts.append(text_of(token))
        elif token.type in ("fence", "code_block"):
            texts.append(token.content)
    yield _section(page, heading, texts)


def _section(page: GuidePage, heading: str, texts: list[str]) -> GuideSection:
    text = " ".join(" ".join(texts).split())
    place = GuidePlace(page.path, "" if heading == page.title else anchor_of(heading))
    return GuideSection(page, heading, place, text, _words(page.title), _words(heading), _words(text))


def _words(text: str) -> tuple[str, ...]:
    plain = unicodedata.normalize("NFKD", text.lower().replace("đ", "d"))
    return tuple(WORD.findall("".join(character for character in plain if not unicodedata.combining(character))))
