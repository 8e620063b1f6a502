"""Ids with the time of a moment."""

from datetime import UTC, datetime, timedelta

from core.ids import new_id_at


def test_ids_of_moments_a_millisecond_apart_are_in_their_order() -> None:
    """With floating point, 375 of these moments had an id of the millisecond before."""
    moments = [datetime(2023, 11, 14, 22, 13, 25, tzinfo=UTC) + timedelta(milliseconds=n) for n in range(1_000)]
    ids = [new_id_at(moment) for moment in moments]
    assert [each.int >> 80 for each in ids] == [1_700_000_005_000 + n for n in range(1_000)]
    assert ids == sorted(ids)
