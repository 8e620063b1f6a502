"""`python -m config.web`: the web server, with daphne's options, as in `python -m config.web -b 0.0.0.0 -p 8000`."""

import os
import sys

from django.conf import settings

from config import service_urls
from config.http.database import limit_waits

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
# Only in web processes, where people wait for pages. Migrations and background work may take longer.
service_urls.limit_statements(settings.DATABASES["default"], settings.STATEMENT_TIMEOUT)
limit_waits(settings.DATABASES["default"])

import config.asgi  # noqa: E402, F401 - sets Django up for the server; no connection may be open before
from config.http.server import CommandLine  # noqa: E402 - as above
from core.background import exit_process  # noqa: E402 - as above

if __name__ == "__main__":
    settings.MEDIA_ROOT.mkdir(mode=0o700, parents=True, exist_ok=True)  # uploads to a bucket wait there, too
    CommandLine().run([*sys.argv[1:], "config.asgi:application"])
    exit_process(0)
