"""Legacy names of time zones have current ones, whatever time zone data the machine has."""

import zoneinfo
from datetime import UTC, datetime

import pytest

from core.time_zones import find_zone, is_zone, legacy_names, present_name


@pytest.mark.parametrize(
    ("legacy", "present"),
    [
        ("Asia/Saigon", "Asia/Ho_Chi_Minh"),
        ("Asia/Calcutta", "Asia/Kolkata"),
        ("Asia/Katmandu", "Asia/Kathmandu"),
        ("Europe/Kiev", "Europe/Kyiv"),
        ("US/Pacific", "America/Los_Angeles"),
        ("America/Buenos_Aires", "America/Argentina/Buenos_Aires"),
        ("Africa/Asmera", "Africa/Asmara"),
        ("Iceland", "Atlantic/Reykjavik"),
        ("Zulu", "UTC"),
    ],
)
def test_a_legacy_name_has_a_present_one(legacy: str, present: str) -> None:
    assert present_name(legacy) == present
    zone = find_zone(legacy)
    assert zone is not None
    assert zone.key == present


@pytest.mark.parametrize(
    "name", ["Europe/Stockholm", "Asia/Ho_Chi_Minh", "UTC", "GMT", "Etc/GMT+5", "Europe/Amsterdam"]
)
def test_a_name_in_use_stays(name: str) -> None:
    assert present_name(name) == name
    assert is_zone(name)


@pytest.mark.parametrize(
    "name", ["Mars/Olympus", "", "America", "../etc/passwd", "asia/saigon", "Asia/Saigon\0", "localtime", "Factory"]
)
def test_an_unknown_name_is_no_zone(name: str) -> None:
    assert find_zone(name) is None
    assert not is_zone(name)


def test_every_legacy_name_leads_to_a_present_one_that_keeps_the_same_time() -> None:
    assert len(legacy_names()) > 100
    moments = [datetime(2026, month, 15, 12, tzinfo=UTC) for month in (1, 4, 7, 10)]
    for legacy, present in legacy_names().items():
        assert present not in legacy_names()
        then, now = zoneinfo.ZoneInfo(legacy), zoneinfo.ZoneInfo(present)
        assert [moment.astimezone(then).utcoffset() for moment in moments] == [
            moment.astimezone(now).utcoffset() for moment in moments
        ]
