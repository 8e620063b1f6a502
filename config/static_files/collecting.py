"""Static files are collected by the web server when it starts, so that no start needs a command before it."""

import os
import tempfile
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles.management.commands.collectstatic import Command
from django.core.management import call_command

from config.embedded.errors import StartError
from config.static_files.originals import fingerprint
from config.static_files.storage import ORIGINALS_NAME, HashedStaticFiles


def collect_changed() -> None:
    """Fills `STATIC_ROOT`, unless what stands there was made from the same originals. Nothing while developing: with
    DEBUG files are served from where they stand.

    Files of the version before stay for its pages and processes: names carry a hash. The manifest comes last, so
    whoever reads it has all that it names, and several processes may do this at once. Raises StartError when the
    directory cannot be written.
    """
    root = Path(settings.STATIC_ROOT)
    if settings.DEBUG or _made_from(root) == fingerprint():
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".new-") as directory:
            new = Path(directory)
            command = Command()
            command.storage = HashedStaticFiles(location=new)  # type: ignore[no-untyped-call]
            call_command(command, interactive=False, verbosity=0)
            _move(new, root, last=(HashedStaticFiles.manifest_name, ORIGINALS_NAME))
    except OSError as error:
        raise StartError(
            f"Static files cannot be collected in {root} ({error.strerror}): run manage.py collectstatic as somebody"
            " who can write there, or set STATIC_ROOT to another directory."
        ) from error


def _made_from(root: Path) -> str:
    try:
        return (root / ORIGINALS_NAME).read_text()
    except OSError:
        return ""


def _move(new: Path, root: Path, *, last: tuple[str, ...]) -> None:
    names = [path.relative_to(new) for path in new.rglob("*") if path.is_file()]
    for name in sorted(names, key=lambda name: last.index(str(name)) if str(name) in last else -1):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(new / name, root / name)
