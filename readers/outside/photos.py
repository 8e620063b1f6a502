"""Photos of a phone (HEIC), opened by libheif's program where the machine has it.

The package of Python that has libheif carries an encoder under the GPL along, and the one without it is not kept any
more.
"""

import tempfile
from pathlib import Path
from shutil import copyfile

from readers.outside import programs

_PROGRAMS = ("heif-dec", "heif-convert")  # its newer and its older name
_QUALITY = "90"  # of a JPEG


def available() -> bool:
    return bool(programs.found(*_PROGRAMS))


def jpeg(path: Path) -> bytes:
    """The photo as JPEG. Raises what `programs.run` raises."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copyfile(path, folder / "photo.heic")
        programs.run(folder, programs.found(*_PROGRAMS), "-q", _QUALITY, "photo.heic", "photo.jpg")
        return (folder / "photo.jpg").read_bytes()
