"""Prepare the start of Glasshouse: translations, the thread switch interval, and the styles of the admin."""

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

# Seconds. While threads compute, an event loop waits this long for each of its callbacks. With Python's default of
# 5 ms, answers on a hundred connections would wait half a second.
SWITCH_INTERVAL = 0.001


class LeanUnfoldConfig(unfold.DefaultAppConfig):
    """Unfold with one CSS class per cell and checkbox. `static/css/admin.css` styles these classes.

    Unfold itself writes 400 to 600 bytes of classes into each element.
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
        replacements = {
            "checked:bg-green-500": "checked:bg-primary-600",
            "dark:checked:bg-green-700": "dark:checked:bg-primary-600",
        }
        widgets.SWITCH_CLASSES[:] = [replacements.get(each, each) for each in widgets.SWITCH_CLASSES]
        super().ready()  # type: ignore[no-untyped-call]  # Unfold annotates nothing here
        admin.site = sites.site = AdminSite()


class ConfigConfig(AppConfig):
    name = "config"
    default = True

    def ready(self) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL)
        memory.limit_arenas()
        # If the data directory is not writable, pages are in English. Code that needs it raises its own error.
        with suppress(OSError, StartError):
            compile_changed()
        from config import admin_words  # imported here, since the admin's pages are registered only now

        admin_words.translate()


def sources() -> list[Path]:
    """Return the paths of the catalogues in the repository."""
    return sorted((settings.BASE_DIR / "locale").glob("*/LC_MESSAGES/django.po"))


def compile_changed() -> None:
    """Compile the translations of `sources` into the data directory, without gettext's tools.

    A compiled catalogue has the modification time of its source, to the nanosecond. A different time means a changed
    source. Raises OSError and StartError if the data directory is not writable.
    """
    for source in sources():
        compiled = catalogue(source.parents[1].name)
        time = source.stat().st_mtime_ns
        if compiled.exists() and compiled.stat().st_mtime_ns == time:
            continue
        make_data_dir(settings.DATA_DIR)
        for folder in reversed(compiled.parents[:3]):  # no access for other users, as in the whole data directory
            folder.mkdir(mode=0o700, exist_ok=True)
        # Several processes may start at once, so each replaces the file atomically.
        number, name = tempfile.mkstemp(dir=compiled.parent)
        os.close(number)
        polib.pofile(str(source)).save_as_mofile(name)
        os.utime(name, ns=(time, time))
        os.replace(name, compiled)
