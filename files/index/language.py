"""Languages of texts for PostgreSQL's text search, and the preparation of texts for its parser.

Each passage of a file has its own language. A passage in a language with a stemmer in PostgreSQL gets the configuration
of that language. All other passages (Vietnamese, Chinese, source code) get `simple`, which only folds case. A passage
whose language cannot be detected, such as a table of numbers, has the language of its file.

In scripts without spaces between words the parser would treat a sentence as one word. Such runs are split into
overlapping parts, in chunks and in queries: Chinese, Japanese and Korean into pairs of characters, Thai, Lao, Khmer and
Burmese into triples, as their syllables are longer. So a search finds every part of at least two characters. It finds a
single character only if that stands alone. docs/decisions/0057 compares this with segmenters.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from py3langid.langid import MODEL_FILE, LanguageIdentifier

SIMPLE = "simple"
CONFIGURATIONS = {
    "ar": "arabic",
    "hy": "armenian",
    "eu": "basque",
    "ca": "catalan",
    "da": "danish",
    "nl": "dutch",
    "en": "english",
    "fi": "finnish",
    "fr": "french",
    "de": "german",
    "el": "greek",
    "hi": "hindi",
    "hu": "hungarian",
    "id": "indonesian",
    "ga": "irish",
    "it": "italian",
    "lt": "lithuanian",
    "ne": "nepali",
    "nb": "norwegian",
    "nn": "norwegian",
    "no": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "es": "spanish",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
}
SAMPLE_CHARACTERS = 2_000  # characters in each of the three samples of a text
MIN_CONFIDENCE = 0.7  # minimum probability of a language to use its configuration
MIN_LETTERS = 40
# Minimums for a passage in a different language than its file. They are higher, since names, addresses and headings of
# tables are often detected as a different language.
MIN_PASSAGE_CONFIDENCE = 0.99
MIN_PASSAGE_LETTERS = 120
# Of 100 characters without spaces, about 1 is such a sign in prose, and 10 or more in source code. Figures and the
# signs around them are not counted: half of all annual reports counted as code with them.
CODE_SIGNS = frozenset('{}[]()<>=;_/\\&*+#$@^~`"')
MAX_CODE_SIGNS = 0.09
_FIGURES = re.compile(r"(?<![($€£¥<>+~])[($€£¥<>+~]*+[0-9][0-9.,:/'’]*[)%*]*|\|")

_TRIPLED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_UNSPACED = (
    f"{_TRIPLED}\u1100-\u11ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
TRIPLED_RUN = re.compile(f"[{_TRIPLED}]{{3,}}")
# Soft hyphens, and spaces of no width at which long words may break.
_INVISIBLE = dict.fromkeys((0xAD, 0x200B, 0x2060, 0xFEFF))
_CODES = {configuration: code for code, configuration in reversed(CONFIGURATIONS.items())}
UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")
_SCRIPT_RUN = re.compile(f"[{_TRIPLED}]+|[^{_TRIPLED}]+")


def detect_configuration(text: str) -> str:
    """Return the text search configuration of PostgreSQL for a text, judged by its start, middle and end."""
    return _detect_by_samples(text) or SIMPLE


def detect_configurations(passages: Sequence[str]) -> tuple[str, list[str]]:
    """Return the configuration of a file, and of each of its passages."""
    sure = [
        _likeliest_configuration(passage[:SAMPLE_CHARACTERS], MIN_PASSAGE_LETTERS, MIN_PASSAGE_CONFIDENCE)
        for passage in passages
    ]
    votes = Counter(filter(None, sure)).most_common(1)
    file_configuration = _detect_by_samples("\n".join(passages)) or (votes[0][0] if votes else SIMPLE)
    return file_configuration, [configuration or file_configuration for configuration in sure]


def _detect_by_samples(text: str) -> str | None:
    middle = len(text) // 2
    sample = " ".join(
        (
            text[:SAMPLE_CHARACTERS],
            text[max(SAMPLE_CHARACTERS, middle) : middle + SAMPLE_CHARACTERS],
            text[max(SAMPLE_CHARACTERS, len(text) - SAMPLE_CHARACTERS) :],
        )
    )
    return _likeliest_configuration(sample, MIN_LETTERS, MIN_CONFIDENCE)


def _likeliest_configuration(sample: str, fewest_letters: int, confident: float) -> str | None:
    """Return the configuration of a sample; None if it is too short or too mixed."""
    dense = _FIGURES.sub("", "".join(sample.split()))
    if sum(map(str.isalpha, dense)) < fewest_letters:
        return None
    if sum(sign in CODE_SIGNS for sign in dense) > MAX_CODE_SIGNS * len(dense):
        return SIMPLE
    shares: Counter[str] = Counter()
    for language, probability in _identifier().rank(" ".join(_FIGURES.sub(" ", sample).split())):
        shares[CONFIGURATIONS.get(language, SIMPLE)] += probability
    likeliest, share = shares.most_common(1)[0]
    return likeliest if share >= confident else None


def key_prefix(configuration: str) -> str:
    """Return the beginning of the stored lexemes of a configuration. A lexeme itself has no space.

    It is empty for `simple`, and for postings that were stored before they had languages.
    """
    return "" if configuration == SIMPLE else f"{_CODES[configuration]} "


def prepare_text(text: str) -> str:
    """Return the text in normal form NFKC, without invisible signs in words, and with unspaced scripts in parts."""
    return UNSPACED_RUN.sub(_parts, normalize(text))


def normalize(text: str) -> str:
    """Return the text in normal form NFKC, without invisible signs in words."""
    return unicodedata.normalize("NFKC", text).translate(_INVISIBLE)


def split_run(run: str, size: int) -> list[str]:
    """Return the overlapping pieces of a run that have `size` characters; the run itself if it is shorter."""
    return [run[at : at + size] for at in range(len(run) - size + 1)] or [run]


def _parts(run: re.Match[str]) -> str:
    parts = [
        part for each in _SCRIPT_RUN.findall(run[0]) for part in split_run(each, 3 if TRIPLED_RUN.match(each) else 2)
    ]
    return f" {' '.join(parts)} "


@lru_cache(maxsize=1)
def _identifier() -> LanguageIdentifier:
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
