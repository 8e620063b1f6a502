"""Test the cost of a model call: exact, by kind of token, and unmoved by nonsense."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.known_models import suggest
from llm.models import Model
from llm.types.model_call import Prices, Usage

counts = st.integers(0, 2**31 - 1)
prices = st.decimals(0, 10**8 - 1, places=6)
every_price = st.builds(Prices, prices, prices, prices, prices)
usages = st.builds(Usage, counts, counts, counts, counts, counts)


def test_every_kind_of_token_has_its_price() -> None:
    usage = Usage(input=1_234, output=200, cached_input=1_000, reasoning=150, cache_written=100)
    price = Prices(Decimal(3), Decimal(15), Decimal("0.3"), Decimal("3.75"))
    assert price.cost(usage) == Decimal("0.004077")  # 134 at 3, 1,000 at 0.3, 100 at 3.75, 200 at 15


@given(every_price, usages)
def test_the_parts_of_a_call_add_up_to_it_whatever_is_reported(price: Prices, usage: Usage) -> None:
    counts = usage.within_totals()
    assert counts.cached_input + counts.cache_written <= counts.input == usage.input
    assert counts.reasoning <= counts.output == usage.output
    plain = counts.input - counts.cached_input - counts.cache_written
    parts = [
        Usage(plain, 0),
        Usage(counts.cached_input, 0, cached_input=counts.cached_input),
        Usage(counts.cache_written, 0, cache_written=counts.cache_written),
        Usage(0, counts.output),
    ]
    assert sum(price.cost(part) for part in parts) == price.cost(usage) >= 0


@given(st.lists(st.tuples(every_price, usages), max_size=5))
def test_a_cost_keeps_all_its_digits_in_twelve_decimals(calls: list[tuple[Prices, Usage]]) -> None:
    costs = [price.cost(usage) for price, usage in calls]
    assert all(cost == round(cost, 12) for cost in costs)


@given(prices, usages)
def test_one_price_for_all_makes_the_cache_indifferent(price: Decimal, usage: Usage) -> None:
    assert Prices(price, price, price, price).cost(usage) == (usage.input + usage.output) * price / 10**6


@given(every_price, counts, counts, counts)
def test_no_call_costs_more_than_was_said_ahead(price: Prices, prompt: int, answer: int, cached: int) -> None:
    ahead = Usage(prompt, 0, cached_input=cached)
    expected = price.expected_cost(ahead, answer)
    assert expected.prompt == price.cost(ahead)
    assert expected.answer_per_1000 * 1_000 == price.output
    plain, read, written = Usage(prompt, answer), Usage(prompt, answer, cached), Usage(prompt, answer, 0, 0, prompt)
    assert all(price.cost(usage) <= expected.at_most for usage in (plain, read, written))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, None),
        ({"input_price": Decimal(3)}, None),
        ({"output_price": Decimal(3), "cached_input_price": Decimal(1)}, None),
        ({"input_price": Decimal(-3), "output_price": Decimal(3)}, None),
        ({"input_price": Decimal(0), "output_price": Decimal(0)}, (0, 0, 0, 0)),
        ({"input_price": Decimal(3), "output_price": Decimal(9)}, (3, 9, 3, 3)),
        ({"input_price": Decimal(3), "output_price": Decimal(9), "cached_input_price": Decimal(-1)}, (3, 9, 3, 3)),
        ({"input_price": Decimal(3), "output_price": Decimal(9), "cached_input_price": Decimal(0)}, (3, 9, 0, 3)),
        ({"input_price": Decimal(3), "output_price": Decimal(9), "cache_write_price": Decimal(4)}, (3, 9, 3, 4)),
    ],
)
def test_without_a_price_of_the_cache_there_is_no_discount(
    row: dict[str, Decimal], expected: tuple[int, int, int, int] | None
) -> None:
    prices = Model(name="one", **row).prices
    assert prices == (Prices(*map(Decimal, expected)) if expected else None)


def test_prices_of_the_cache_are_known_where_the_vendor_has_some() -> None:
    suggestion = suggest("anthropic", "claude-sonnet-4-5")
    assert suggestion is not None and suggestion.input_price == Decimal(3)
    assert (suggestion.cached_input_price, suggestion.cache_write_price) == (Decimal("0.3"), Decimal("3.75"))
