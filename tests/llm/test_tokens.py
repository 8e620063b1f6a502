"""Counting and cutting text in tokens."""

import hashlib
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from llm.tokens import CATCH_ALL, NAMES, count, image_tokens, split_into_slices, tokenizer, truncate

TEXTS = [
    "The quick brown fox doesn't jump over 12,345 lazy dogs.",
    "Tôi muốn tóm tắt tài liệu này, được không? Đường Nguyễn Huệ.",
    "人工智能正在改变世界。我们应该如何应对？",
    "🦜🇻🇳👩‍👩‍👧‍👦 families, é combining, \u200b zero width",
    "def f(x):\n\treturn {k: v for k, v in x.items() if v != '\\n'}\n\n\n    # end   \n",
    "<|endoftext|><|fim_prefix|> is <|endofprompt|> text",
    "",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", TEXTS)
def test_a_count_is_tiktokens_own(name: str, text: str) -> None:
    assert tokenizer(name).count(text) == len(tiktoken.get_encoding(name).encode(text, disallowed_special=()))


def test_an_unknown_tokenizer_is_refused_by_name() -> None:
    with pytest.raises(LookupError, match="gpt-9"):
        tokenizer("gpt-9")


def test_a_special_token_in_a_text_is_counted_as_ordinary_characters() -> None:
    assert count("<|endoftext|>") > 1


def cache_file(name: str) -> str:
    """The name under which tiktoken looks for a vocabulary."""
    url = f"https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
    return hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()


@pytest.mark.process
def test_a_new_machine_without_a_network_can_count(tmp_path: Path) -> None:
    program = (
        "import socket\n"
        "def refuse(*arguments, **options): raise OSError('no network')\n"
        "socket.socket.connect = refuse\n"
        "socket.getaddrinfo = refuse\n"
        "from llm.tokens import count\n"
        "print(count('Xin chào'), count('Xin chào', 'cl100k_base'))\n"
    )
    environment = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(count("Xin chào")), str(count("Xin chào", "cl100k_base"))]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {cache_file(name) for name in NAMES}
    assert all(path.parent.stat().st_mode & 0o777 == 0o700 for path in files)


@pytest.mark.process
def test_a_damaged_vocabulary_is_replaced_without_a_network(tmp_path: Path) -> None:
    damaged = tmp_path / cache_file(CATCH_ALL)
    damaged.write_bytes(b"half a fi")
    program = (
        "import socket\n"
        "def refuse(*arguments, **options): raise OSError('no network')\n"
        "socket.socket.connect = refuse\n"
        "from llm.tokens import count\n"
        "print(count('hello'))\n"
    )
    environment = {"PATH": os.environ["PATH"], "TIKTOKEN_CACHE_DIR": str(tmp_path)}
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1" and damaged.stat().st_size > 1_000_000


def test_sockets_are_not_needed_once_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert count("hello world") == 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", ["a", " ", "\n", "\u3000", "!", "中", "🦜", "a b", " \n", "é", "\ud83e"])
def test_megabytes_of_the_same_characters_are_counted(name: str, unit: str) -> None:
    text = unit * (1_200_000 // len(unit))
    assert 0 < count(text, name) <= len(text.encode("utf-8", "replace")) * 4


def test_long_prose_has_exactly_the_tokens_of_the_whole() -> None:
    text = " ".join(f"Sentence {n}, isn't it; «cited» {n / 7:.3f}!\n" for n in range(8_000))
    assert len(text) > 3 * 65_536
    assert count(text) == len(tiktoken.get_encoding(CATCH_ALL).encode_ordinary(text))


def test_slices_are_bounded_and_lose_nothing() -> None:
    text = "word, " * 50_000 + "x" * 200_000
    pieces = list(split_into_slices(text))
    assert "".join(pieces) == text and max(map(len, pieces)) <= 65_536


def test_a_hard_cut_adds_at_most_a_few_tokens() -> None:
    text = "人工智能正在改变世界" * 20_000
    exact = len(tiktoken.get_encoding(CATCH_ALL).encode_ordinary(text))
    assert exact <= count(text) <= exact + 4 * (len(text) // 65_536 + 1)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.sampled_from(TEXTS), st.text(max_size=120)), st.integers(-2, 60), st.sampled_from(NAMES))
def test_a_cut_text_is_an_end_of_the_text_within_the_limit(text: str, limit: int, name: str) -> None:
    cutter = tokenizer(name)
    head, tail = cutter.head(text, limit), cutter.tail(text, limit)
    for piece in (head, tail):
        piece.encode()
        assert piece == "" or cutter.count(piece) <= limit
    assert text.startswith(head) and text.endswith(tail)
    if cutter.count(text) <= limit:
        assert head == tail == text


def test_a_cut_text_is_as_long_as_it_may_be() -> None:
    text = "One two three four five six seven eight nine ten"
    assert truncate(text, 4) == "One two three four"
    assert tokenizer(CATCH_ALL).tail(text, 3) == " eight nine ten"


def test_a_cut_never_splits_a_character() -> None:
    text = "🦜🦩🪿" * 10
    for limit in range(1, 30):
        assert text.startswith(truncate(text, limit))


def test_threads_may_count_at_the_same_time() -> None:
    def counts() -> list[int]:
        return [count(text, name) for text in TEXTS * 20 for name in NAMES]

    with ThreadPoolExecutor(8) as pool:
        results = [future.result() for future in [pool.submit(counts) for _ in range(16)]]
    assert results == [counts()] * 16


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (16, 16, 1 + 32),
        (17, 16, 2 + 32),
        (1_024, 768, 64 * 48 + 32),
        (2_048, 2_048, 128 * 128 + 32),
        (4_096, 2_048, 128 * 64 + 32),
        (2_049, 1_000, 128 * 63 + 32),
        (1_000, 6_144, 21 * 128 + 32),
        (1, 1, 33),
    ],
)
def test_an_image_costs_its_patches_with_the_long_side_capped(width: int, height: int, tokens: int) -> None:
    assert image_tokens(width, height) == tokens
