"""`python -m config.embedded.web DESCRIPTOR`: daphne on a listening socket it inherits.

It loads everything a request needs, then waits for the end of its input: the supervisor closes that when migrations
are done. So loading costs no time of its own, and nobody is answered before the database is ready.
"""

import gc
import sys
from importlib import import_module

from django.urls import get_resolver

APPLICATION = "config.asgi"
SERVER = "config.http.server"


def main(descriptor: str) -> None:
    gc.disable()  # collecting while modules load takes a quarter of the time and finds nothing
    import_module(APPLICATION)
    get_resolver().url_patterns  # noqa: B018 - a property that imports every view
    gc.freeze()
    gc.enable()
    sys.stdin.read()
    import_module(SERVER).CommandLine().run(["--fd", descriptor, f"{APPLICATION}:application"])


if __name__ == "__main__":
    main(sys.argv[1])
