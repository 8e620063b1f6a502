"""Values of a body are bounded by the memory that they take, not by the characters around them."""

import json

import pytest

from core.errors import ProductError
from core.json_bodies import LIST, MAX_VALUE_BYTES, OBJECT, SCALAR, STRING, load


@pytest.mark.parametrize(
    ("value", "weight"), [("[]", LIST + SCALAR), ("{}", OBJECT + SCALAR), ('"Ā"', STRING + SCALAR), ("1.5", SCALAR)]
)
def test_as_many_values_are_taken_as_fit_and_no_more(value: str, weight: int) -> None:
    fit = (MAX_VALUE_BYTES - LIST) // weight
    assert len(load(f"[{','.join([value] * fit)}]".encode())) == fit
    with pytest.raises(ProductError, match="too_many_values"):
        load(f"[{','.join([value] * (fit + 2))}]".encode())


@pytest.mark.parametrize("text", ["a, b, c, " * 200_000, '{"[", "]"}, ' * 100_000, "\\" * 300_000, 'x"\\", ' * 90_000])
def test_commas_and_brackets_of_a_text_are_no_values(text: str) -> None:
    body = {"text": text, "after": [1, 2]}
    assert load(json.dumps(body).encode()) == body


@pytest.mark.parametrize("raw", [b"NaN", b"[Infinity]", b'"a', b"\xff", b"", b'{"a": "' + b'\\"' * 400_000])
def test_what_is_not_json_is_refused_as_before(raw: bytes) -> None:
    with pytest.raises(ValueError):
        load(raw)


def test_a_text_that_does_not_end_hides_no_values() -> None:
    """As far as the text is JSON, its values count; behind that it is refused anyway."""
    with pytest.raises((ProductError, ValueError)):
        load(b'["' + b"[]," * 2_000_000)


@pytest.mark.parametrize("piece", [b'"\\', b'\\"', b'"\\"'])
def test_quotes_of_a_text_that_does_not_end_are_looked_at_once(piece: bytes) -> None:
    """From each of them to the end would take hours: the square of their number."""
    with pytest.raises((ProductError, ValueError)):
        load(b'["' + piece * (8_000_000 // len(piece)))
