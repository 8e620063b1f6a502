"""Return memory that a process no longer needs to the system.

Memory stays allocated for two reasons. First, Python's collector counts objects, not bytes. Django REST framework and
Django's forms create reference cycles. A parsed body of 8 MB in such a cycle stays until thousands of other objects are
created. Second, glibc keeps freed memory in up to eight arenas per processor, each of which only grows.

1. `limit_arenas` limits glibc to two arenas, and makes it allocate each large block from the system separately. Each
   process calls it before it starts other threads.
2. `watch` checks every few seconds, and reclaims memory after work.
3. `note_released` reclaims at once when requests have released large bodies, even between two checks.
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
# Bytes. Blocks of at least this size are mapped from the system and returned when they are freed. By default glibc
# raises this threshold to the size of each such block that is freed, up to 32 MB.
MMAP_THRESHOLD = 262_144
M_MMAP_THRESHOLD = -3  # these two are from glibc's malloc.h
M_ARENA_MAX = -8

CHECK_INTERVAL = 5.0  # seconds between two checks; the interval grows while reclaiming frees little
MAX_CHECK_INTERVAL = 30.0  # seconds
MIN_RECLAIMABLE = 16_000_000  # bytes above the process's minimum; less is not worth a collection
MIN_CPU_SECONDS = 0.1  # since the last collection; a process that used less has no new memory to return
RECLAIM_EVERY = 8_000_000  # released bytes of large bodies between two collections
RESIDENT_FIELD = 1  # the field of /proc/self/statm with the resident pages

logger = logging.getLogger(__name__)
_statm = Path("/proc/self/statm")
_reclaiming = threading.Lock()
_counting = threading.Lock()
_released = 0


def _libc() -> ctypes.CDLL | None:
    """Return the C library; None if it lacks a function that this module uses."""
    try:
        library = ctypes.CDLL(None)
        return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
    except (OSError, TypeError):  # TypeError: Windows
        return None


def limit_arenas() -> None:
    """Set glibc's limits for this process and its forks. Other C libraries have no such arenas."""
    if library := _libc():
        library.mallopt(M_ARENA_MAX, ARENAS)
        library.mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD)


def resident() -> int:
    """Return the resident memory of this process in bytes, 0 on systems without /proc."""
    try:
        return int(_statm.read_text().split()[RESIDENT_FIELD]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def reclaim() -> None:
    """Collect cycles and return freed memory to the system. Returns at once if another thread is doing so."""
    if not _reclaiming.acquire(blocking=False):
        return
    try:
        clear_cache()  # urllib caches the last 128 parsed URLs, and each may have megabytes
        gc.collect()
        if library := _libc():
            library.malloc_trim(0)
    finally:
        _reclaiming.release()


def note_released(size: int) -> None:
    """Count the bytes of a released large body. Reclaims memory after every `RECLAIM_EVERY` bytes."""
    global _released
    with _counting:
        _released += size
        due = _released >= RECLAIM_EVERY
        if due:
            _released = 0
    if due:
        reclaim()


def watch() -> None:
    """Start a thread that reclaims memory for the lifetime of the process.

    Existing objects are frozen, so that later collections skip them.
    """
    gc.collect()
    gc.freeze()
    threading.Thread(target=_watch, name="memory", daemon=True).start()


def _watch() -> None:
    least = resident()
    used = time.process_time()
    pause = CHECK_INTERVAL
    while True:
        time.sleep(pause)
        before = resident()
        least = min(least, before)
        if before - least < MIN_RECLAIMABLE or time.process_time() - used < MIN_CPU_SECONDS:
            continue
        try:
            reclaim()
        except Exception:
            logger.exception("memory could not be reclaimed")  # the next round tries again
        used = time.process_time()
        pause = CHECK_INTERVAL if before - resident() >= MIN_RECLAIMABLE else min(2 * pause, MAX_CHECK_INTERVAL)
