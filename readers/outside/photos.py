"""Convert phone photos (HEIC) with libheif's program, if it is installed.

The Python package of libheif includes a GPL encoder. The package without it is no longer maintained.
"""

import tempfile
from pathlib import Path
from shutil import copyfile

from readers.outside import programs

_PROGRAMS = ("heif-dec", "heif-convert")  # the newer and the older name
_QUALITY = "90"  # JPEG quality


def available() -> bool:
    return bool(programs.find(*_PROGRAMS))


def jpeg(path: Path) -> bytes:
    """Return the photo as JPEG. Raises the errors of `programs.run`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copyfile(path, folder / "photo.heic")
        programs.run(folder, programs.find(*_PROGRAMS), "-q", _QUALITY, "photo.heic", "photo.jpg")
        return (folder / "photo.jpg").read_bytes()
