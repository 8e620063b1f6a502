"""Shares in words."""

from decimal import Decimal

import pytest
from django.utils.translation import override

from core.i18n import cents, percent


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        (0, 100, "0 %"),
        (1, 30_065, "under 1 %"),
        (155, 30_065, "1 %"),
        (522, 30_065, "2 %"),
        (634, 30_065, "2 %"),  # 2.1
        (141, 1_393, "10 %"),  # 10.1
        (5, 1_000, "1 %"),  # a half is rounded up
        (4, 1_000, "under 1 %"),
        (1_200, 1_000, "100 %"),
        (5, 0, "0 %"),
    ],
)
def test_a_share_is_rounded_to_the_nearest_percent_and_never_to_nothing(part: int, whole: int, expected: str) -> None:
    with override("en"):
        assert percent(part, whole) == expected


def test_a_share_has_the_form_of_its_language() -> None:
    with override("vi"):
        assert (percent(1, 2), percent(1, 1_000)) == ("50%", "dưới 1%")


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("0", "$0.00"),
        ("0.000085", "< $0.01"),
        ("0.0099", "< $0.01"),
        ("0.01", "$0.01"),
        ("0.041", "$0.04"),
        ("1234.505", "$1,234.50"),
    ],
)
def test_a_sum_is_in_whole_cents_and_a_smaller_one_says_so(amount: str, shown: str) -> None:
    assert cents(Decimal(amount)) == shown
