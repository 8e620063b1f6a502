"""Languages of texts for PostgreSQL's text search, and the preparation of texts for its parser.

A text in a language with a stemmer in PostgreSQL gets the configuration of that language. All other texts (Vietnamese,
Chinese, source code, tables of numbers, short texts) get `simple`, which only folds case.

In scripts without spaces between words (Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese) the parser would treat a
sentence as one word. Such runs are split into overlapping pairs of characters, in chunks and in queries. So a search
finds every part of at least two characters. It finds a single character only if that stands alone.
"""

import re
import unicodedata
from collections import Counter
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
SAMPLE = 2_000  # characters in each of the three samples of a text
CONFIDENT = 0.7  # minimum probability of a language to use its configuration
FEWEST_LETTERS = 40
# Of 100 characters without spaces, about 1 is such a sign in prose, and 10 or more in source code.
CODE_SIGNS = frozenset('{}[]()<>=;_/\\|&*+#$@^~`"0123456789')
MOST_CODE_SIGNS = 0.09

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")


def configuration_of(text: str) -> str:
    """Return the text search configuration of PostgreSQL for a text, judged by its start, middle and end."""
    middle = len(text) // 2
    sample = " ".join(
        (text[:SAMPLE], text[max(SAMPLE, middle) : middle + SAMPLE], text[max(SAMPLE, len(text) - SAMPLE) :])
    )
    dense = "".join(sample.split())
    if sum(map(str.isalpha, dense)) < FEWEST_LETTERS:
        return SIMPLE
    if sum(sign in CODE_SIGNS for sign in dense) > MOST_CODE_SIGNS * len(dense):
        return SIMPLE
    shares: Counter[str] = Counter()
    for language, probability in _identifier().rank(sample):
        shares[CONFIGURATIONS.get(language, SIMPLE)] += probability
    likeliest, share = shares.most_common(1)[0]
    return likeliest if share >= CONFIDENT else SIMPLE


def readable(text: str) -> str:
    """Return the text for the parser of PostgreSQL: in normal form NFKC, with unspaced scripts in pairs."""
    return UNSPACED_RUN.sub(_pairs, unicodedata.normalize("NFKC", text))


def _pairs(run: re.Match[str]) -> str:
    characters = run[0]
    pairs = [characters[at : at + 2] for at in range(len(characters) - 1)] or [characters]
    return f" {' '.join(pairs)} "


@lru_cache(maxsize=1)
def _identifier() -> LanguageIdentifier:
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
