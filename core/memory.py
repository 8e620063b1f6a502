"""Memory that a process no longer needs goes back to the system.

Two things hold it. Python's collector counts objects and not bytes: a parsed body of 8 MB in a reference cycle, as
Django REST framework and Django's forms make them, stays until thousands of other objects have come. And glibc keeps
freed memory in up to eight arenas a processor, each of which only grows.

1. `limit_arenas` has glibc use two arenas, and take large blocks from the system one by one. Each process calls it
   before it has other threads.
2. `watch` looks every few seconds, and reclaims what work has left behind.
3. `note_released` reclaims at once when requests have left much behind, however fast they come.
"""

import ctypes
import gc
import logging
import os
import threading
import time
from pathlib import Path
from urllib.parse import clear_cache  # type: ignore[attr-defined]  # the stubs lack it

ARENAS = 2
# Bytes. Blocks from this size on come from the system and go back to it when they are freed. glibc raises its own
# threshold to the size of each such block that is freed, up to 32 MB.
OWN_MAPPING = 262_144
M_MMAP_THRESHOLD = -3  # these two are from glibc's malloc.h
M_ARENA_MAX = -8

EVERY = 5.0  # seconds between two looks, at first
SELDOM = 30.0  # seconds between two looks at most, while there is nothing to return
LEFT_BEHIND = 16_000_000  # bytes above the least that the process has held; less is not worth a collection
WORK = 0.1  # seconds of a processor since the last time: a process that has done nothing has nothing to return
RELEASED = 8_000_000  # bytes of large bodies between two collections
RESIDENT = 1  # the field of /proc/self/statm with the resident pages

logger = logging.getLogger(__name__)
_statm = Path("/proc/self/statm")
_reclaiming = threading.Lock()
_counting = threading.Lock()
_released = 0


def _libc() -> ctypes.CDLL | None:
    """Return the C library; None where it has none of the functions that are used here."""
    try:
        library = ctypes.CDLL(None)
        return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
    except (OSError, TypeError):  # TypeError: Windows
        return None


def limit_arenas() -> None:
    """Set glibc's limits for this process and its forks. Other C libraries have no such arenas."""
    if library := _libc():
        library.mallopt(M_ARENA_MAX, ARENAS)
        library.mallopt(M_MMAP_THRESHOLD, OWN_MAPPING)


def resident() -> int:
    """Return the resident memory of this process in bytes; 0 where the system has no /proc."""
    try:
        return int(_statm.read_text().split()[RESIDENT]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def reclaim() -> None:
    """Collect cycles and return freed memory to the system. Returns at once while another thread does it."""
    if not _reclaiming.acquire(blocking=False):
        return
    try:
        clear_cache()  # urllib keeps the last 128 parsed addresses, which may have megabytes each
        gc.collect()
        if library := _libc():
            library.malloc_trim(0)
    finally:
        _reclaiming.release()


def note_released(size: int) -> None:
    """Count the bytes of a large body that was released, and reclaim once they are many."""
    global _released
    with _counting:
        _released += size
        due = _released >= RELEASED
        if due:
            _released = 0
    if due:
        reclaim()


def watch() -> None:
    """Reclaim memory on a thread, as long as the process lives.

    The objects of now are frozen, so that later collections need not look at them.
    """
    gc.collect()
    gc.freeze()
    threading.Thread(target=_watch, name="memory", daemon=True).start()


def _watch() -> None:
    least = resident()
    used = time.process_time()
    pause = EVERY
    while True:
        time.sleep(pause)
        before = resident()
        least = min(least, before)
        if before - least < LEFT_BEHIND or time.process_time() - used < WORK:
            continue
        try:
            reclaim()
        except Exception:
            logger.exception("memory could not be reclaimed")  # the next round tries again
        used = time.process_time()
        pause = EVERY if before - resident() >= LEFT_BEHIND else min(2 * pause, SELDOM)
