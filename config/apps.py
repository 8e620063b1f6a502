"""The preparations when the product starts: its translations, the switching of its threads, and the admin's look."""

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

# Seconds. While threads compute, an event loop waits this long for each of its callbacks: Python's 5 ms, with an answer
# on each of a hundred connections, add up to half a second.
SWITCH_INTERVAL = 0.001


class LeanUnfoldConfig(unfold.DefaultAppConfig):
    """Unfold with one class for each cell and box to tick, whose look is in `static/css/admin.css`.

    Unfold itself writes 400 to 600 bytes of classes into each.
    """

    default = False  # `settings.INSTALLED_APPS` names it

    def ready(self) -> None:
        from django.contrib import admin
        from django.contrib.admin import sites
        from unfold import widgets  # neither can be imported before all apps are loaded
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
        # Code that needs the data directory raises its own error where it cannot be written; pages are in English then.
        with suppress(OSError, StartError):
            compile_changed()
        from config import admin_words  # only now are the pages of the admin registered

        admin_words.translate()


def sources() -> list[Path]:
    """Return the paths of the catalogues in the repository."""
    return sorted((settings.BASE_DIR / "locale").glob("*/LC_MESSAGES/django.po"))


def compile_changed() -> None:
    """Compile the translations of `sources` into the data directory, without gettext's tools.

    A compiled catalogue has the time of its source, to the nanosecond; another time means another source. Raises
    OSError and StartError where the data directory cannot be written.
    """
    for source in sources():
        compiled = catalogue(source.parents[1].name)
        time = source.stat().st_mtime_ns
        if compiled.exists() and compiled.stat().st_mtime_ns == time:
            continue
        make_data_dir(settings.DATA_DIR)
        for folder in reversed(compiled.parents[:3]):  # closed to others, as the whole data directory
            folder.mkdir(mode=0o700, exist_ok=True)
        # Several processes may start at once; each puts a whole file in place.
        number, name = tempfile.mkstemp(dir=compiled.parent)
        os.close(number)
        polib.pofile(str(source)).save_as_mofile(name)
        os.utime(name, ns=(time, time))
        os.replace(name, compiled)
