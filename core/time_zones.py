"""Names of time zones, and the present names of legacy ones.

Machines differ in the names that their data has: Debian 13 left out Asia/Saigon, which browsers in Vietnam still send.
The package `tzdata` has all names of the tz database, with its links from one name to another.
"""

import zoneinfo
from collections.abc import Mapping
from functools import cache
from importlib import resources

# The data links these to the zone that keeps the same time, which is another place; its comments name the place itself.
_SAME_PLACE = {
    "Africa/Asmera": "Africa/Asmara",
    "Africa/Timbuktu": "Africa/Bamako",
    "America/Coral_Harbour": "America/Atikokan",
    "America/Virgin": "America/St_Thomas",
    "Antarctica/South_Pole": "Antarctica/McMurdo",
    "Atlantic/Jan_Mayen": "Arctic/Longyearbyen",
    "Iceland": "Atlantic/Reykjavik",
    "Pacific/Ponape": "Pacific/Pohnpei",
    "Pacific/Truk": "Pacific/Chuuk",
    "Pacific/Yap": "Pacific/Chuuk",
}
_NO_PLACES = frozenset({"localtime", "Factory"})  # the machine's own zone, and the one of a machine without
_STAY = frozenset({"UTC", "GMT"})  # short names that people use


def zone_named(name: str) -> zoneinfo.ZoneInfo | None:
    """Return the zone, under its present name; None for a name that this machine does not know."""
    return zoneinfo.ZoneInfo(present_name(name)) if is_zone(name) else None


def is_zone(name: str) -> bool:
    return present_name(name) in names()


def present_name(name: str) -> str:
    """Return the present name of a zone, such as Asia/Ho_Chi_Minh for Asia/Saigon; any other name as it is."""
    return legacy_names().get(name, name)


@cache
def names() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones()) - _NO_PLACES


@cache
def legacy_names() -> Mapping[str, str]:
    """Return the present names by the legacy ones.

    A link whose name is in the table of places (`zone.tab`) is no legacy name: Europe/Stockholm is one to
    Europe/Berlin, but is what people there choose.
    """
    data = resources.files("tzdata") / "zoneinfo"
    rows = (line.split("\t") for line in (data / "zone.tab").read_text().splitlines() if not line.startswith("#"))
    places = {row[2] for row in rows}
    links = (line.split() for line in (data / "tzdata.zi").read_text().splitlines() if line.startswith("L "))
    targets = {name: target for _link, target, name in links}
    legacy = {name: target for name, target in targets.items() if name not in places and name not in _STAY}
    return {name: "UTC" if target == "Etc/UTC" else target for name, target in legacy.items()} | _SAME_PLACE
