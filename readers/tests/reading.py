"""Read a file as the product does, in a process of its own. Tests import the fixture."""

from collections.abc import Callable
from pathlib import Path

import pytest

from readers.formats.result import Extracted, ReaderError
from readers.process import extract

Read = Callable[..., Extracted]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def run(content: bytes | str, name: str = "upload", encoding: str = "", password: str = "") -> Extracted:
        path = tmp_path / "blob"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return extract(path, name, encoding, password)

    return run


def refusal(
    read: Read, content: bytes | str, name: str = "upload", encoding: str = "", password: str = ""
) -> ReaderError:
    with pytest.raises(ReaderError) as caught:
        read(content, name, encoding, password)
    return caught.value


def pages(result: Extracted) -> list[str]:
    return [result.text[start:end] for start, end in result.spans]
