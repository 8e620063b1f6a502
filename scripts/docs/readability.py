"""`python -m scripts.docs.readability` lists sentences of the README and docs/use that are too long, and hard pages.

The grade is that of Flesch and Kincaid (Kincaid et al., 1975): 0.39 × words per sentence + 11.8 × syllables per word −
15.59. Syllables are counted by groups of vowels, which is right for nine English words in ten. Code, tables, headings
and the addresses of links are left out, since they are no sentences.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
MAX_SENTENCE_LENGTH = 35  # words
HARDEST_GRADE = 9.0
PROSE = MarkdownIt("commonmark").enable("table")
SENTENCE = re.compile(r"(?<=[.!?])[”’)]*\s+(?=[\"“A-Z0-9@/`])")
WORD = re.compile(r"[A-Za-z][A-Za-z’'-]*|[0-9][0-9.,]*")
VOWELS = re.compile(r"[aeiouy]+")
SILENT = re.compile(r"(?<![^aeiouy]l)es?$|ed$")  # “file”, “made”, “opened”; but “table”
SOUNDED = re.compile(r"(?:[td]ed|[scxz]es|ges|shes|ches)$")  # “wanted”, “pages”


@dataclass(frozen=True, slots=True)
class PageGrade:
    """How easy a page is to read: its grade, and its sentences over `MAX_SENTENCE_LENGTH`."""

    page: Path
    grade: float
    long: tuple[str, ...]

    @property
    def easy(self) -> bool:
        return self.grade <= HARDEST_GRADE and not self.long


def pages() -> list[Path]:
    """Return the pages that have to be easy: the README and the English pages of docs/use."""
    return [
        ROOT / "README.md",
        *(page for page in sorted((ROOT / "docs/use").glob("*.md")) if page.stem.count(".") == 0),
    ]


def read(page: Path) -> PageGrade:
    """Measure a page. A page without sentences has the grade 0."""
    sentences = [words for sentence in sentences_of(page.read_text()) if (words := WORD.findall(sentence))]
    words = [word for sentence in sentences for word in sentence]
    grade = 0.0
    if words:
        grade = 0.39 * len(words) / len(sentences) + 11.8 * sum(map(syllables, words)) / len(words) - 15.59
    return PageGrade(page, grade, tuple(" ".join(each) for each in sentences if len(each) > MAX_SENTENCE_LENGTH))


def sentences_of(markdown: str) -> list[str]:
    """Return the sentences of paragraphs and lists; code within a line counts as one word."""
    depth, sentences = 0, list[str]()
    for token in PROSE.parse(markdown):
        if token.type.partition("_")[0] in ("table", "heading"):
            depth += token.nesting
        if token.type == "inline" and not depth:
            pieces = ("code" if child.type == "code_inline" else child.content or " " for child in token.children or [])
            sentences += SENTENCE.split("".join(pieces))
    return sentences


def syllables(word: str) -> int:
    """Return the number of syllables of an English word; a number counts as one."""
    plain = word.lower().strip("’'-")
    silent = SILENT.search(plain) and not SOUNDED.search(plain)
    return max(1, len(VOWELS.findall(plain)) - bool(silent))


if __name__ == "__main__":
    readings = [read(page) for page in pages()]
    for reading in readings:
        print(f"{reading.grade:5.1f}  {reading.page.relative_to(ROOT)}")
        for sentence in reading.long:
            print(f"       {len(sentence.split())} words: {sentence}")
    sys.exit(not all(reading.easy for reading in readings))
