"""One event loop a process, on its own thread, which runs every turn of that process as a coroutine.

A thread per turn would cost a database connection each and could not be cancelled while a model is silent.
"""

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")
logger = logging.getLogger(__name__)

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def loop() -> asyncio.AbstractEventLoop:
    """The process's loop, started at the first call."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="turns", daemon=True).start()
        return _loop


def submit(work: Coroutine[Any, Any, Result]) -> "Future[Result]":
    return asyncio.run_coroutine_threadsafe(work, loop())
