"""Files outside of the data directory are readable for their owner alone."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from core import private_files
from tests.config.sources import modules, packages

WRITING = {"write_text", "write_bytes", "mkdir", "makedirs", "touch", "copyfile", "copy2", "copytree"}
# What writes within the data directory, a temporary folder or STATIC_ROOT, which everybody may read; each by its file.
ELSEWHERE = {
    "config/browser_packages.py",
    "config/static_files.py",
    "config/web.py",
    "config/apps.py",
    "readers/outside/recognition.py",
    "readers/outside/photos.py",
    "llm/tokens.py",
    "readers/confinement.py",  # its score of the kernel, in /proc
    "core/private_files.py",
    "core/background.py",  # the empty file that says that a worker lives
    "chat/conversations/export.py",  # into a zip in memory
    "chat/conversations/chatgpt_export.py",  # as above
    "files/speech/services.py",  # a recording in memory
}


def modes(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): oct(path.stat().st_mode & 0o777) for path in root.rglob("*")}


@pytest.fixture(params=[0o000, 0o022, 0o277])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_files_and_folders_are_private_whatever_the_umask_and_what_was_there(tmp_path: Path, umask: int) -> None:
    target = tmp_path / "target"
    target.mkdir()
    target.chmod(0o755)
    (target / "rows").mkdir()
    (target / "rows").chmod(0o777)
    (target / "rows" / "old").write_bytes(b"before")
    (target / "rows" / "old").chmod(0o644)
    private_files.make_private(target / "rows" / "one", below=target)
    for name in ("new", "old"):
        with private_files.open_private(target / "rows" / name) as file:
            file.write(b"secret")
    assert modes(target) == {"rows": "0o700", "rows/one": "0o700", "rows/new": "0o600", "rows/old": "0o600"}
    assert target.stat().st_mode & 0o777 == 0o755  # others may need it, and are told


def test_an_open_folder_that_was_there_is_named_and_a_new_one_is_closed(tmp_path: Path) -> None:
    assert private_files.make_target(tmp_path / "new" / "folder") is None
    assert (tmp_path / "new" / "folder").stat().st_mode & 0o777 == 0o700
    assert private_files.make_target(tmp_path / "new" / "folder") is None
    (tmp_path / "new" / "folder").chmod(0o750)
    warning = private_files.make_target(tmp_path / "new" / "folder")
    assert warning is not None
    assert "is open to other users of this machine (mode 750)" in warning.english


def writes(path: Path) -> Iterator[str]:
    """Yield the calls in a module that create a file or folder, without those of `core.private_files`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        texts = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        written = any(text in ("w", "wb", "a", "ab", "x", "xb", "w+b") for text in texts)
        if name in WRITING or (name == "open" and written):
            yield f"{path.relative_to(settings.BASE_DIR)}:{node.lineno} {name}"


def test_no_command_writes_a_file_in_another_way() -> None:
    calls = [
        call
        for path in modules(*packages())
        if "embedded" not in path.parts and str(path.relative_to(settings.BASE_DIR)) not in ELSEWHERE
        for call in writes(path)
    ]
    assert calls == []
