"""Compare the meanings of short texts with the bundled embedder, which needs no database."""

from functools import lru_cache

from core.errors import ModelError
from files.index.embedders import embed_bundled
from files.index.vectors import Vector


def similarity(one: str, other: str) -> float:
    """Return the cosine similarity of two texts; 0 if one of them cannot be embedded."""
    first = _vector(one)
    second = _vector(other)
    return float(first @ second) if first is not None and second is not None else 0.0


@lru_cache(maxsize=4_096)
def _vector(text: str) -> Vector | None:
    try:
        return embed_bundled([text])[0]
    except ModelError:
        return None
