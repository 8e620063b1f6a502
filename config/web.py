"""`python -m config.web`: the web server, with daphne's options, as in `python -m config.web -b 0.0.0.0 -p 8000`."""

import sys

import config.asgi  # noqa: F401 - sets Django up, which the server needs
from config.http.server import CommandLine

if __name__ == "__main__":
    CommandLine().run([*sys.argv[1:], "config.asgi:application"])
