"""The size of a model by its name."""

from decimal import Decimal

import pytest

from llm.model_size import billions_of_parameters, is_small


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("SmolLM2-135M-Instruct", "0.135"),
        ("qwen2.5:0.5b", "0.5"),
        ("llama3.2:1b-instruct-q4_K_M", "1"),
        ("Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "70"),
        ("qwen2.5-7b-instruct-1m", "7"),  # a window of a million tokens
        ("mixtral-8x7b", None),
        ("gpt-4.1-nano", None),
        ("claude-sonnet-4-1m", None),
        ("phi3", None),
    ],
)
def test_a_name_tells_the_size(name: str, billions: str | None) -> None:
    assert billions_of_parameters(name) == (Decimal(billions) if billions else None)


def test_below_three_billion_is_small_and_unknown_is_not() -> None:
    assert is_small("gemma-3-1b-it") and not is_small("llama-3.2-3b") and not is_small("gpt-5")
