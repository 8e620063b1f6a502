"""What the supervisor forks into the product's own processes: all is loaded once, and its memory is theirs together.

Loading takes seconds of a processor and 200 MB; each process on its own would pay that again.
"""

import gc
import os
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from celery.signals import worker_ready
from django.conf import settings
from django.core.management import call_command
from django.urls import get_resolver

SERVER = "config.http.server"
READY = "takes what is queued"
ALONE = ("--without-gossip", "--without-mingle", "--without-heartbeat")


def load() -> None:
    """Everything a request or a Celery task needs. Nothing is connected: a connection belongs to one process."""
    gc.disable()  # collecting while modules load takes a quarter of the time and finds nothing
    import_module("config.asgi")
    get_resolver().url_patterns  # noqa: B018 - a property that imports every view
    import_module(SERVER)
    import_module("config.celery").app.loader.import_default_modules()
    import_module("llm.tokens").count("")  # which reads the vocabulary
    gc.freeze()  # the collector would write to every object, and the pages would be shared no more
    gc.enable()


def prepare(model_url: str, model_key: str) -> None:
    """Migrations and seed. stdout is what `manage.py seed` says: one line of JSON."""
    settings.BUNDLED_MODEL_KEY = model_key
    use_model(model_url)
    call_command("migrate", interactive=False, verbosity=0)
    call_command("seed")


def use_model(url: str) -> None:
    settings.BUNDLED_MODEL_URL = url


def web(descriptor: int) -> None:
    """daphne on a listening socket it inherits."""
    import_module(SERVER).CommandLine().run(["--fd", str(descriptor), "config.asgi:application"])


def worker(queue: str, threads: int) -> Callable[[], None]:
    """It says `READY` as soon as what is queued is carried out."""
    options = ["--pool", "threads", "--concurrency", str(threads), "-Q", queue, "-n", f"{queue}@%h", *ALONE]
    return partial(_celery, "worker", *options)


def beat(schedule: str) -> Callable[[], None]:
    return partial(_celery, "beat", "--pidfile=", "-s", schedule)


def _say_ready(**kwargs: Any) -> None:
    os.write(1, f"{READY}\n".encode())  # Celery logs what goes to sys.stdout


def _celery(*arguments: str) -> None:
    # It warns about root, which is the usual user in a container, on every start.
    warnings.filterwarnings("ignore", "You're running the worker")
    worker_ready.connect(_say_ready)  # behind what the queues' own modules do then
    import_module("config.celery").app.start(["--quiet", "--skip-checks", *arguments])
