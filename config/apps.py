from contextlib import suppress

from django.apps import AppConfig

from config import compile_messages
from config.embedded.errors import StartError


class ConfigConfig(AppConfig):
    name = "config"

    def ready(self) -> None:
        # What needs the data directory says so itself when it cannot be written; until then pages are in English.
        with suppress(OSError, StartError):
            compile_messages.compile_changed()
