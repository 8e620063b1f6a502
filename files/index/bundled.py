"""The bundled embedder: word vectors from a package. They use 120 MB in each process that embeds."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import wordllama

from core.outside import wait_outside
from files.index.vectors import Vector, normalize

CAPITAL_WORDS = 2  # most words of a name in capitals
DIMENSIONS = 256
SMALL_BATCH = 4_000  # characters; smaller batches skip the lock, as a search takes 0.03 ms and a batch of a file 30 ms

_loading = threading.Lock()
_embedding = threading.Lock()
_model: Any = None


def embed_batch(texts: Sequence[str]) -> list[Vector | None]:
    """Return one vector per text, None for a text without a known word.

    A process embeds one large batch at a time, so that memory does not grow with the number of callers. The caller
    limits the size of the batch.
    """
    lowered = [_lower_capitals(text) for text in texts]
    with nullcontext() if sum(map(len, texts)) <= SMALL_BATCH else _wait_for_turn():
        rows = _load_model().embed(lowered, batch_size=len(lowered))
    return [normalize(row) for row in rows]


def _load_model() -> Any:
    global _model
    with _loading:
        if _model is None:
            # The default folder for the tokenizer is empty in the package. This folder has both files.
            folder = Path(wordllama.__file__).parent
            _model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
        return _model


@contextmanager
def _wait_for_turn() -> Iterator[None]:
    """Run the block alone in this process. The wait for its turn holds no database connection."""
    if not _embedding.acquire(blocking=False):
        with wait_outside():
            _embedding.acquire()
    try:
        yield
    finally:
        _embedding.release()


def _lower_capitals(text: str) -> str:
    """Return the text with lines in capitals lowered.

    The tokenizer knows few words in capitals, and splits the others into meaningless syllables. A line of at most two
    words stays unchanged, since it may be a name such as NATO.
    """
    lines = text.encode(errors="replace").decode().split("\n")  # the tokenizer refuses lone surrogates
    return "\n".join(line.lower() if line.isupper() and len(line.split()) > CAPITAL_WORDS else line for line in lines)
