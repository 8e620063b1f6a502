"""`make lock`: what every wheel of requirements*.txt must hash to, for the versions that stand there.

For another version change it there and run this. pip refuses a package without a hash, so what a new version needs
besides is named by the next `make setup`, and is to be added. Of a package with wheels for some systems only, its
source is taken as well. No address of an index gets into the files: where packages come from is for pip to know.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILES = tuple(ROOT / f"requirements{kind}.txt" for kind in ("", "-embedded", "-weights", "-dev", "-node"))
OLDEST = 11  # of Python 3
PIN = re.compile(
    r"^(?P<name>[\w.-]+)(?P<extras>\[[\w,-]+\])?==(?P<version>[^\s;\\]+)(?P<marker> *;[^\\\n]*[^\\\s])?", re.M
)
HASHES = re.compile(r" *\\\n +--hash=sha256:[0-9a-f]{64}")
WHEEL = re.compile(r"-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<system>[^-]+)\.whl$")
SYSTEM = re.compile(r"\b(any|(manylinux|musllinux)\w*_(x86_64|aarch64)|macosx\w+)\b")


def usable(wheel: str) -> bool:
    """Whether a file of this name is for CPython and a system that the product runs on."""
    tags = WHEEL.search(wheel)
    if tags is None or not SYSTEM.search(tags["system"]):
        return False
    if tags["abi"] == "none":
        return "py3" in tags["python"].split(".") or bool(re.fullmatch(r"cp3(1[1-9]|[2-9]\d)", tags["python"]))
    if tags["abi"] == "abi3":
        return tags["python"].startswith("cp3")
    own = re.fullmatch(r"cp3(\d+)", tags["abi"])
    return own is not None and int(own[1]) >= OLDEST


def hashes_of(package: Mapping[str, Any]) -> list[str]:
    """Of one package of pylock.toml."""
    files = {_name(wheel): wheel for wheel in package.get("wheels", ()) if usable(_name(wheel))}
    everywhere = any(WHEEL.search(name)["system"] == "any" for name in files)  # type: ignore[index]  # all are wheels
    if "sdist" in package and not everywhere:
        files[_name(package["sdist"])] = package["sdist"]
    return sorted({str(file["hashes"]["sha256"]) for file in files.values()})


def _name(file: Mapping[str, Any]) -> str:
    return str(file.get("name") or file["url"].rpartition("/")[2])


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> Iterator[re.Match[str]]:
    return PIN.finditer(HASHES.sub("", text))


def locked(text: str, hashes: Mapping[str, list[str]]) -> str:
    """A file of requirements with the hashes of each package, by its normal name."""

    def with_hashes(pin: re.Match[str]) -> str:
        return " \\\n    ".join([pin[0], *(f"--hash=sha256:{each}" for each in hashes[normal(pin["name"])])])

    return PIN.sub(with_hashes, HASHES.sub("", text))


def published() -> dict[str, list[str]]:
    """What the index that uv is set up for says of all pinned versions."""
    wanted = sorted({f"{pin['name']}=={pin['version']}" for path in FILES for pin in pins(path.read_text())})
    with tempfile.TemporaryDirectory() as directory:
        asked, told = Path(directory) / "pins.in", Path(directory) / "pylock.toml"
        asked.write_text("\n".join(wanted))
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-deps", "--universal"]
        command += ["--python-version", f"3.{OLDEST}", "--format", "pylock.toml", "-o", str(told), str(asked)]
        subprocess.run(command, check=True)
        packages = tomllib.loads(told.read_text())["packages"]
    return {normal(each["name"]): hashes_of(each) for each in packages}


def main() -> None:
    hashes = published()
    for path in FILES:
        before = path.read_text()
        if (after := locked(before, hashes)) != before:  # else make would install all of it again
            path.write_text(after)


if __name__ == "__main__":
    main()
