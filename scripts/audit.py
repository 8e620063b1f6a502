"""`make audit`: known vulnerabilities of the pinned packages, from advisories that were saved before. Asks no network.

`ADVISORIES` names a folder or file of advisories in the OSV format, as OSV publishes for PyPI and npm and the Python
Packaging Authority keeps: .json and .yaml files, at any depth, and .zip files of them. Ends with status 0 when none of
the packages has a known vulnerability, 1 when one has, and 2 when nothing was checked, because there are no advisories
or they cannot be read. With `--where-saved`, as CI runs it, it says so as plainly but ends with 0 where `ADVISORIES`
is not set.
"""

import json
import os
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version

from config.browser_packages import PACKAGES, read_lock
from scripts.lock import FILES, normal, pins

FINE, VULNERABLE, UNCHECKED = 0, 1, 2
Advisory = Mapping[str, Any]
Package = tuple[str, str]  # its ecosystem, as OSV calls it, and its name there


class Unusable(Exception):
    """There is nothing to check against; the sentence says why."""


@dataclass(frozen=True, order=True, slots=True)
class Vulnerability:
    """Of one pinned package. `fixed`: the versions that are said to have it no more."""

    package: str
    version: str
    id: str
    aliases: tuple[str, ...]
    summary: str
    fixed: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join((self.id, *self.aliases))
        mend = f"fixed in {', '.join(self.fixed)}" if self.fixed else "no version without it is named"
        return f"{self.package} {self.version}: {names}: {self.summary or 'no summary'} ({mend})"


def saved(place: Path) -> Iterator[Advisory]:
    """Every advisory in a file or folder. Raises `Unusable` for what cannot be read."""
    paths = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
    for path in paths:
        try:
            if path.suffix == ".zip":
                with zipfile.ZipFile(path) as archive:
                    for name in archive.namelist():
                        yield from _advisories(name, archive.read(name))
            else:
                yield from _advisories(path.name, path.read_bytes())
        except (OSError, ValueError, RecursionError, yaml.YAMLError, zipfile.BadZipFile) as error:
            raise Unusable(f"{path} cannot be read as advisories ({type(error).__name__}).") from error


def _advisories(name: str, content: bytes) -> Iterator[Advisory]:
    if not name.endswith((".json", ".yaml", ".yml")):
        return
    read = json.loads(content) if name.endswith(".json") else yaml.load(content, Loader=yaml.CSafeLoader)
    found = read.get("vulns", [read]) if isinstance(read, dict) else read
    yield from (each for each in found or () if isinstance(each, dict) and "id" in each and "affected" in each)


def read_pins() -> dict[Package, str]:
    """Return the versions of all pinned packages: those of the requirements, and those that pages load code from."""
    lock = read_lock()
    python = {("PyPI", normal(pin["name"])): pin["version"] for path in FILES for pin in pins(path.read_text())}
    return python | {("npm", package.name): lock[package.name].version for package in PACKAGES}


def vulnerabilities(pinned: Mapping[Package, str], advisories: Iterable[Advisory]) -> Iterator[Vulnerability]:
    """Yield the vulnerabilities of packages in these versions."""
    for advisory in advisories:
        if advisory.get("withdrawn"):
            continue
        for affected in advisory["affected"]:
            package = affected.get("package", {})
            ecosystem, name = str(package.get("ecosystem", "")), str(package.get("name", ""))
            if ecosystem == "PyPI":
                name = normal(name)
            version = pinned.get((ecosystem, name))
            if version is None or not _is_affected(version, affected):
                continue
            aliases = tuple(sorted(map(str, advisory.get("aliases") or ())))
            summary = str(advisory.get("summary") or advisory.get("details") or "").strip().partition("\n")[0]
            fixed = tuple(dict.fromkeys(str(event["fixed"]) for event in _events(affected) if "fixed" in event))
            yield Vulnerability(name, version, str(advisory["id"]), aliases, summary, fixed)


def _is_affected(version: str, affected: Mapping[str, Any]) -> bool:
    """By the list of versions or one of the ranges, as the OSV schema says; both are whole by themselves."""
    if version in (affected.get("versions") or ()):
        return True
    return any(_within(Version(version), each["events"]) for each in _ranges(affected))


def _ranges(affected: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for each in affected.get("ranges") or ():
        if each.get("type") in ("ECOSYSTEM", "SEMVER") and each.get("events"):
            yield each


def _events(affected: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for each in _ranges(affected):
        yield from each["events"]


def _within(version: Version, events: Iterable[Mapping[str, Any]]) -> bool:
    """An event is `introduced`, `fixed` (the first without it) or `last_affected`, each with a version."""
    inside = False
    for what, at in sorted((_parsed(event) for event in events), key=lambda each: each[1]):
        if what == "introduced" and version >= at:
            inside = True
        elif (what == "fixed" and version >= at) or (what == "last_affected" and version > at):
            inside = False
    return inside


def _parsed(event: Mapping[str, Any]) -> tuple[str, Version]:
    what, at = next(iter(event.items()))
    try:
        return what, Version(str(at))
    except InvalidVersion:
        return "unknown", Version("0")


def audited(place: Path) -> list[str]:
    """A line a vulnerability of the pinned packages. Raises `Unusable`."""
    if not place.exists():
        raise Unusable(f"There is no {place}.")
    pinned = read_pins()
    advisories = list(saved(place))
    if not advisories:
        raise Unusable(f"{place} holds no advisories in the OSV format.")
    newest = max(str(each.get("modified") or each.get("published") or "") for each in advisories)[:10]
    print(f"{len(pinned)} packages, {len(advisories):,} advisories, the newest of {newest or 'an unknown day'}.")
    return [str(each) for each in sorted(set(vulnerabilities(pinned, advisories)))]


def main(arguments: list[str]) -> int:
    place = os.environ.get("ADVISORIES", "")
    if not place:
        print("Nothing was audited: ADVISORIES names no saved advisories. See “Packages” in the README.")
        return FINE if "--where-saved" in arguments else UNCHECKED
    try:
        found = audited(Path(place))
    except Unusable as why:
        print(f"Nothing was audited. {why}")
        return UNCHECKED
    print("\n".join(found) or "None of them has a known vulnerability.")
    return VULNERABLE if found else FINE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
