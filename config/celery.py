"""The Celery application, and what a worker does at its start and end."""

import importlib
import os
import threading
from typing import Any

from celery import Celery
from celery.signals import worker_ready, worker_shutting_down

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
app = Celery("glasshouse")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

GRACE = 7.0  # seconds that running answers get to finish when the worker is asked to end; the supervisor waits 10


@worker_ready.connect
def _tell_ready(**kwargs: Any) -> None:
    importlib.import_module("chat.streams").mark_worker_alive()


@worker_shutting_down.connect
def _end_turns(**kwargs: Any) -> None:
    """A worker asked to end lets its answers finish for a while, then ends them as interrupted, their text kept."""

    def interrupt() -> None:
        turns = importlib.import_module("chat.turns")
        importlib.import_module("llm.runtime").loop().call_soon_threadsafe(turns.interrupt_all)

    timer = threading.Timer(GRACE, interrupt)
    timer.daemon = True
    timer.start()
