"""What is made ready when the product starts: its translations, how its threads take turns, and the admin's look."""

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import polib
from django.apps import AppConfig
from django.conf import settings
from unfold import apps as unfold

from config.embedded.paths import StartError, make_data_dir
from core import memory
from core.i18n import catalogue

# Seconds. While threads compute, an event loop waits so long for each of its callbacks: Python's 5 ms, with an answer
# on each of a hundred connections, are half a second.
SWITCH_INTERVAL = 0.001


class LeanUnfoldConfig(unfold.DefaultAppConfig):
    """Unfold writes 400 to 600 bytes of classes into every cell and box to tick. Here each has one class, whose look is
    in `static/css/admin.css`."""

    default = False  # it is named by `settings.INSTALLED_APPS`

    def ready(self) -> None:
        from django.contrib import admin
        from django.contrib.admin import sites
        from unfold import widgets  # neither can be imported before all apps are there
        from unfold.templatetags import unfold_list

        from core.admin_site import AdminSite

        unfold_list.ROW_CLASSES[:] = ["cell"]
        unfold_list.CHECKBOX_CLASSES[:] = ["action-checkbox", "cell"]
        widgets.CHECKBOX_CLASSES[:] = ["tick"]
        ours = {
            "checked:bg-green-500": "checked:bg-primary-600",
            "dark:checked:bg-green-700": "dark:checked:bg-primary-600",
        }
        widgets.SWITCH_CLASSES[:] = [ours.get(each, each) for each in widgets.SWITCH_CLASSES]
        super().ready()  # type: ignore[no-untyped-call]  # Unfold annotates nothing here
        admin.site = sites.site = AdminSite()


class ConfigConfig(AppConfig):
    name = "config"
    default = True

    def ready(self) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL)
        memory.limit_arenas()
        # What needs the data directory says so itself when it cannot be written; until then pages are in English.
        with suppress(OSError, StartError):
            compile_changed()
        from config import admin_words  # the pages of the admin are registered by now, not before

        admin_words.translate()


def sources() -> list[Path]:
    """The catalogues that are written by people."""
    return sorted((settings.BASE_DIR / "locale").glob("*/LC_MESSAGES/django.po"))


def compile_changed() -> None:
    """Translations, compiled from `sources` into the data directory, without gettext's tools.

    A catalogue is as old as its source, to the nanosecond; any other age means that it is of another source.

    Raises OSError and StartError when the data directory cannot be written.
    """
    for source in sources():
        made = catalogue(source.parents[1].name)
        written = source.stat().st_mtime_ns
        if made.exists() and made.stat().st_mtime_ns == written:
            continue
        make_data_dir(settings.DATA_DIR)
        for folder in reversed(made.parents[:3]):  # closed to others, as all that is in the data directory
            folder.mkdir(mode=0o700, exist_ok=True)
        # Several processes may start at once; each puts a whole file in place.
        number, name = tempfile.mkstemp(dir=made.parent)
        os.close(number)
        polib.pofile(str(source)).save_as_mofile(name)
        os.utime(name, ns=(written, written))
        os.replace(name, made)
