"""The module that a web server loads: it sets Django up, collects the static files and makes the application."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()  # before the routes: they import models

from config.http.routing import create_application  # noqa: E402 - see above
from config.static_files import collect_changed  # noqa: E402 - see above

collect_changed()  # before the middleware looks which files there are
application = create_application()
