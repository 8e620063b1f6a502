"""What the supervisor forks into the product's own processes: all is loaded once, and its memory is theirs together.

Loading takes seconds of a processor and 200 MB; each process on its own would pay that again.
"""

import gc
import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from celery.signals import worker_ready, worker_shutting_down
from django.conf import settings
from django.core.management import call_command
from django.urls import get_resolver

SERVER = "config.http.server"
READY = "takes what is queued"
# What the workers would import one after the other when they start, each for itself.
OF_WORKERS = (
    "billiard.pool",
    "celery.app.amqp",
    "celery.app.control",
    "celery.app.events",
    "celery.app.log",
    "celery.app.routes",
    "celery.apps.worker",
    "celery.beat",
    "celery.concurrency.thread",
    "celery.events.receiver",
    "celery.worker.autoscale",
    "celery.worker.components",
    "celery.worker.consumer.delayed_delivery",
    "celery.worker.strategy",
    "channels_redis.pubsub",
    "files.index.bundled",
    "kombu.transport.redis",
    "llm.providers.ollama",
    "llm.providers.openai",
    "llm.providers.responses",
)
ALONE = {"without_gossip": True, "without_mingle": True, "without_heartbeat": True}
WEB_CONNECTIONS = 12  # to PostgreSQL beside us: more views at a time than processors take it no further
DRAIN_SECONDS = 7  # `Children.stop` waits 10, and whoever has pressed Ctrl-C waits, too
TICK = 1  # seconds after which the clock looks whether it is to end

logger = logging.getLogger(__name__)


def load() -> None:
    """Everything a request or a Celery task needs. Nothing is connected: a connection belongs to one process."""
    settings.DRAIN_SECONDS = min(settings.DRAIN_SECONDS, DRAIN_SECONDS)
    gc.disable()  # collecting while modules load takes a quarter of the time and finds nothing
    import_module("config.asgi")
    get_resolver().url_patterns  # noqa: B018 - a property that imports every view
    import_module(SERVER)
    for module in OF_WORKERS:
        import_module(module)
    app = import_module("config.celery").app
    app.loader.import_default_modules()
    app.finalize()
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
    settings.DATABASES["default"]["OPTIONS"]["pool"]["max_size"] = WEB_CONNECTIONS
    import_module(SERVER).CommandLine().run(["--fd", str(descriptor), "config.asgi:application"])


def worker(queue: str, threads: int, schedule: str = "") -> Callable[[], None]:
    """It says `READY` as soon as what is queued is carried out. With the file of a `schedule` it has the sweepers'
    clock, too: as a process of its own that does next to nothing, beat would take 30 MB."""
    return partial(_work, queue, threads, schedule)


def _work(queue: str, threads: int, schedule: str) -> None:
    """Without Celery's command line, whose packages for prompts and completion take 15 MB."""
    # It warns about root, which is the usual user in a container, on every start.
    warnings.filterwarnings("ignore", "You're running the worker")
    os.environ["CELERY_SKIP_CHECKS"] = "true"
    worker_ready.connect(_say_ready)  # behind what the queues' own modules do then
    app = import_module("config.celery").app
    if schedule:
        _keep_clock(app, schedule)
    name = f"{queue}@{socket.gethostname()}"
    options = {"pool": "threads", "concurrency": threads, "queues": [queue], "loglevel": "WARN", "quiet": True}
    celery = app.Worker(hostname=name, **options, **ALONE)
    celery.start()
    sys.exit(celery.exitcode)


def _say_ready(**kwargs: Any) -> None:
    os.write(1, f"{READY}\n".encode())  # Celery logs what goes to sys.stdout


def _keep_clock(app: Any, schedule: str) -> None:
    """beat on a thread, from when the worker is ready until it ends."""
    beat = import_module("celery.beat").Service(app, TICK, schedule, remote_control=False)

    def keep() -> None:
        try:
            beat.start()
        except Exception:
            # Nothing would be swept any more: the worker ends, and the supervisor starts it again with its clock.
            logger.exception("the sweepers' clock stands still")
            os.kill(os.getpid(), signal.SIGTERM)

    def start(**kwargs: Any) -> None:
        threading.Thread(target=keep, name="clock", daemon=True).start()

    def end(**kwargs: Any) -> None:
        beat.stop()

    worker_ready.connect(start, weak=False)
    worker_shutting_down.connect(end, weak=False)
