"""A job of Celery that never returns, to test the end of a worker (`-I tests.hanging`)."""

import sys
import threading

from celery import shared_task

QUEUE = "hanging"  # of workers that a test starts for it


@shared_task(name="tests.hang")
def hang(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    threading.Event().wait()
