"""Pseudo-relevance feedback: what the best chunks of a first ranking say besides is asked for as well.

Their weightiest words are added to the query's (RM3, Lavrenko and Croft, 2001), and their vectors pull the query's
(Rocchio, 1971). Both little: with more words or chunks, queries drift away. Measured: docs/decisions/0022.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from files.index.language import readable
from files.index.lexemes import lexemes_of
from files.index.ranking import Collection, Postings, Query, idf_of, positions_of, postings, saturated
from files.models import Chunk, File

FEWEST = 100  # visible chunks; among fewer, the best ones are nearly all there are
BEST, WORDS = 5, 35  # chunks that are listened to, and words that they add
OWN_SHARE = 0.4  # of the query's own words in the weights
PULL = 0.3  # of the best chunks' vectors, the query's being 1

_WORD = re.compile(r"\w(?:\S*\w)?")  # with what stands inside, such as a hyphen or a point


@dataclass(frozen=True, slots=True)
class Added:
    """The postings of the query's words and of those that the best chunks add, and what each word weighs now; by
    position, where the added ones stand behind the query's own."""

    entries: Postings
    weights: Mapping[int, float]


def listened_to(best: Iterable[int]) -> list[Chunk]:
    """The rows of the best chunks, with the names and languages of their files."""
    rows = Chunk.objects.filter(pk__in=list(best)).select_related("file")
    names = ("heading", "table_head", "text", "file__name", "file__language")
    return list(rows.only(*names))


def added(
    query: Query,
    entries: Postings,
    counts: Mapping[int, float],
    best: Sequence[Chunk],
    files: QuerySet[File],
    collection: Collection,
) -> Added:
    """What the best chunks add to a query whose words have these postings; `counts`: how much each chunk counts, by its
    id. How rare an added word is counts, too, and is known once its postings are there."""
    positions = positions_of(query.words)
    own = set(positions.values())
    weightiest = _weightiest(counts, best, collection)
    fresh = (lexeme for lexeme in weightiest if lexeme not in positions)
    new = {lexeme: at for at, lexeme in enumerate(fresh, max(own, default=0) + 1)}
    weighed: dict[int, float] = defaultdict(float)
    for lexeme, weight in weightiest.items():
        weighed[positions[lexeme] if lexeme in positions else new[lexeme]] += weight
    found = {**entries, **postings(files, new)}
    rare = {at: weight * idf_of(collection.chunks, len(found[at])) for at, weight in weighed.items() if at in found}
    if not own or not rare:
        return Added(entries, query.weights)
    said = {at: query.weights.get(at, 1.0) for at in own}
    share = (1 - OWN_SHARE) * sum(said.values()) / sum(rare.values())
    weights = {at: OWN_SHARE * weight for at, weight in said.items()}
    for at, weight in rare.items():
        weights[at] = weights.get(at, 0.0) + share * weight
    return Added({at: each for at, each in found.items() if at in weights}, weights)


def _weightiest(counts: Mapping[int, float], chunks: Sequence[Chunk], collection: Collection) -> dict[str, float]:
    """Lexemes of these chunks, by how often they are in them and how much each chunk counts."""
    average = collection.words / collection.chunks
    weights: dict[str, float] = defaultdict(float)
    for language in sorted({chunk.file.language for chunk in chunks}):
        of_language = [chunk for chunk in chunks if chunk.file.language == language]
        texts = {chunk.pk: _WORD.findall(readable(chunk.searched)) for chunk in of_language}
        known = lexemes_of({word for words in texts.values() for word in words}, language)
        for pk, words in texts.items():
            found = Counter(lexeme for word in words for lexeme in known[word])
            for lexeme, frequency in found.items():
                weights[lexeme] += counts[pk] * saturated(frequency, found.total(), average)
    return dict(sorted(weights.items(), key=lambda each: (-each[1], each[0]))[:WORDS])
