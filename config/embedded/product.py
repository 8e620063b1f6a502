"""The product's processes, which the supervisor forks after it has loaded all modules.

So the processes share the modules' memory. Otherwise each would need seconds of processor time and 200 MB.
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
# Modules that each worker would otherwise import when it starts.
WORKER_MODULES = (
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
WEB_CONNECTIONS = 12  # to PostgreSQL on the same machine; more concurrent views than processors gain nothing
DRAIN_SECONDS = 7  # `Children.stop` waits 10, and so does the person who pressed Ctrl-C
TICK = 1  # seconds between beat's checks whether it should stop

logger = logging.getLogger(__name__)


def load() -> None:
    """Load everything that a request or a Celery task needs. Open no connections: they belong to one process."""
    settings.DRAIN_SECONDS = min(settings.DRAIN_SECONDS, DRAIN_SECONDS)
    gc.disable()  # collections take a quarter of the loading time and free nothing
    import_module("config.asgi")
    get_resolver().url_patterns  # noqa: B018 - a property that imports every view
    import_module(SERVER)
    for module in WORKER_MODULES:
        import_module(module)
    app = import_module("config.celery").app
    app.loader.import_default_modules()
    app.finalize()
    import_module("llm.tokens").count("")  # reads the vocabulary
    gc.freeze()  # the collector would write to every object, and its memory page would no longer be shared
    gc.enable()


def prepare(model_url: str, model_key: str) -> None:
    """Run migrations and seed. stdout is the output of `manage.py seed`: one line of JSON."""
    settings.BUNDLED_MODEL_KEY = model_key
    use_model(model_url)
    call_command("migrate", interactive=False, verbosity=0)
    call_command("seed")


def use_model(url: str) -> None:
    settings.BUNDLED_MODEL_URL = url


def web(descriptor: int) -> None:
    """Run daphne on an inherited listening socket."""
    settings.DATABASES["default"]["OPTIONS"]["pool"]["max_size"] = WEB_CONNECTIONS
    import_module(SERVER).CommandLine().run(["--fd", str(descriptor), "config.asgi:application"])


def worker(queue: str, threads: int, schedule: str = "") -> Callable[[], None]:
    """Return the main function of a worker, which prints `READY` once it takes jobs.

    With a `schedule` file it also runs beat, the sweepers' clock, which would take 30 MB as a separate process.
    """
    return partial(_work, queue, threads, schedule)


def _work(queue: str, threads: int, schedule: str) -> None:
    """Run a worker without Celery's command line, whose packages for prompts and completion take 15 MB."""
    # Celery warns about root on every start, but containers usually run as root.
    warnings.filterwarnings("ignore", "You're running the worker")
    os.environ["CELERY_SKIP_CHECKS"] = "true"
    worker_ready.connect(_say_ready)  # runs after the handlers of the queues' own modules
    app = import_module("config.celery").app
    if schedule:
        _run_beat(app, schedule)
    celery = app.Worker(
        hostname=f"{queue}@{socket.gethostname()}",
        pool="threads",
        concurrency=threads,
        queues=[queue],
        loglevel="WARN",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    celery.start()
    sys.exit(celery.exitcode)


def _say_ready(**kwargs: Any) -> None:
    os.write(1, f"{READY}\n".encode())  # Celery would log a line to sys.stdout


def _run_beat(app: Any, schedule: str) -> None:
    """Run beat in a thread from the time the worker is ready until it ends."""
    beat = import_module("celery.beat").Service(app, TICK, schedule, remote_control=False)

    def run_beat() -> None:
        try:
            beat.start()
        except Exception:
            # Without beat no sweeper runs. So the worker ends, and the supervisor restarts both.
            logger.exception("beat failed, so no sweeper would run")
            os.kill(os.getpid(), signal.SIGTERM)

    def start(**kwargs: Any) -> None:
        threading.Thread(target=run_beat, name="clock", daemon=True).start()

    def end(**kwargs: Any) -> None:
        beat.stop()

    worker_ready.connect(start, weak=False)
    worker_shutting_down.connect(end, weak=False)
