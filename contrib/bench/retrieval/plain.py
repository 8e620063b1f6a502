"""Plain BM25, to compare with: k1 1.2 and b .75, small letters, no stemming, no stop words.

Scripts without spaces are split into pairs of characters.
"""

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from files.index.language import UNSPACED_RUN, normalize, split_run

K1, B = 1.2, 0.75


class PlainBM25:
    """Postings of texts by word, in memory."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._postings: dict[str, dict[str, int]] = defaultdict(dict)
        self._lengths: dict[str, int] = {}
        for name, text in texts.items():
            counts = Counter(_words(text))
            self._lengths[name] = counts.total()
            for word, count in counts.items():
                self._postings[word][name] = count
        self._average = sum(self._lengths.values()) / len(self._lengths)

    def ranked(self, query: str) -> list[str]:
        """Return the names of the texts with a word of the query, best first."""
        scores: dict[str, float] = defaultdict(float)
        for word in _words(query):
            postings = self._postings.get(word, {})
            rarity = math.log1p((len(self._lengths) - len(postings) + 0.5) / (len(postings) + 0.5))
            for name, count in postings.items():
                norm = K1 * (1 - B + B * self._lengths[name] / self._average)
                scores[name] += rarity * count * (K1 + 1) / (count + norm)
        return sorted(scores, key=lambda name: (-scores[name], name))


def _words(text: str) -> Iterator[str]:
    """Yield runs of letters, digits and combining marks. `\\w` splits words of Hindi at their vowels."""
    word: list[str] = []
    spaced = UNSPACED_RUN.sub(lambda run: f" {' '.join(split_run(run[0], 2))} ", normalize(text).lower())
    for character in f"{spaced} ":
        if unicodedata.category(character)[0] in "LMN":
            word.append(character)
        elif word:
            yield "".join(word)
            word.clear()
