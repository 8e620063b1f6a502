import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from config.embedded import paths
from config.embedded.paths import StartError
from config.embedded.supervisor import StartOptions, run

DEFAULT_PORT = "8000"


class Command(BaseCommand):
    """Exits with status 0 after a request to stop. Exits with 1 and a sentence on stderr if the product cannot run."""

    help = "Starts the product, with the database, Redis and model that the settings do not name, until Ctrl-C."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            run(_start_options())
        except StartError as error:
            self.stderr.write(str(error))
            sys.exit(1)
        except KeyboardInterrupt:  # before the first child
            sys.exit(0)


def _start_options() -> StartOptions:
    """Return the options from the settings. A URL that differs from the embedded service's is the operator's server."""
    data = settings.DATA_DIR
    own_database = paths.database_url(data) != settings.DATABASE_URL
    own_redis = paths.redis_url(data) != settings.REDIS_URL
    port = os.environ.get("PORT") or DEFAULT_PORT
    if not (port.isdecimal() and int(port) < 65_536):
        raise StartError("PORT must be a number between 0 and 65535; 0 takes any free port.")
    return StartOptions(
        data=data,
        host=os.environ.get("HOST") or "127.0.0.1",
        port=int(port),
        database_url=settings.DATABASE_URL if own_database else None,
        redis_url=settings.REDIS_URL if own_redis else None,
    )
