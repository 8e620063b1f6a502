"""Translations, compiled from `locale/*/LC_MESSAGES/django.po` into the data directory, without gettext's tools."""

import os
import tempfile
from pathlib import Path

import polib
from django.conf import settings

from config.embedded.paths import make_data_dir
from core.i18n import catalogue


def sources() -> list[Path]:
    return sorted((settings.BASE_DIR / "locale").glob("*/LC_MESSAGES/django.po"))


def compile_changed() -> None:
    """A catalogue is as old as its source, to the nanosecond; any other age means that it is of another source.

    Raises OSError and StartError when the data directory cannot be written.
    """
    for source in sources():
        made = catalogue(source.parents[1].name)
        written = source.stat().st_mtime_ns
        if made.exists() and made.stat().st_mtime_ns == written:
            continue
        make_data_dir(settings.DATA_DIR)
        made.parent.mkdir(parents=True, exist_ok=True)
        # Several processes may start at once; each puts a whole file in place.
        number, name = tempfile.mkstemp(dir=made.parent)
        os.close(number)
        polib.pofile(str(source)).save_as_mofile(name)
        os.utime(name, ns=(written, written))
        os.replace(name, made)
