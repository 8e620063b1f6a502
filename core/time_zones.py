"""Names of time zones, and the present names for legacy names.

The names in the system's data differ between machines. Debian 13 left out Asia/Saigon, which browsers in Vietnam still
send. The package `tzdata` has all names of the tz database, with its links from one name to another.
"""

import zoneinfo
from collections.abc import Mapping
from functools import cache
from importlib import resources

# The tz data links these names to a zone with the same time in another place. Its comments name the right place.
_LEGACY_PLACES = {
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
_NO_PLACES = frozenset({"localtime", "Factory"})  # the machine's own zone, and the zone of a machine that has none set
_SHORT_NAMES = frozenset({"UTC", "GMT"})  # short names that people use


def find_zone(name: str) -> zoneinfo.ZoneInfo | None:
    """Return the zone under its present name, or None if this machine does not know the name."""
    return zoneinfo.ZoneInfo(present_name(name)) if is_zone(name) else None


def is_zone(name: str) -> bool:
    return present_name(name) in names()


def present_name(name: str) -> str:
    """Return the present name of a zone, such as Asia/Ho_Chi_Minh for Asia/Saigon; other names unchanged."""
    return legacy_names().get(name, name)


@cache
def names() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones()) - _NO_PLACES


@cache
def legacy_names() -> Mapping[str, str]:
    """Return the present name for each legacy name.

    A link whose name is in the table of places (`zone.tab`) is not a legacy name. For example, Europe/Stockholm is a
    link to Europe/Berlin, but people there choose it.
    """
    data = resources.files("tzdata") / "zoneinfo"
    rows = (line.split("\t") for line in (data / "zone.tab").read_text().splitlines() if not line.startswith("#"))
    places = {row[2] for row in rows}
    links = (line.split() for line in (data / "tzdata.zi").read_text().splitlines() if line.startswith("L "))
    targets = {name: target for _link, target, name in links}
    legacy = {name: target for name, target in targets.items() if name not in places and name not in _SHORT_NAMES}
    return {name: "UTC" if target == "Etc/UTC" else target for name, target in legacy.items()} | _LEGACY_PLACES
