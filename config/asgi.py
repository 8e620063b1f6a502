"""The module that a web server loads. It sets up Django, collects the static files and creates the application."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()  # before the routes: they import models

from config.http.routing import create_application  # noqa: E402 - see above
from config.static_files import collect_changed  # noqa: E402 - see above

collect_changed()  # before the middleware lists the files
application = create_application()
