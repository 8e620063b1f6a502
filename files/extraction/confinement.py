"""What a process that reads an unknown file may use."""

import ctypes
import os
import resource
import signal
import sys

MEMORY = 1 << 30  # bytes of address space
CPU_SECONDS = 40
OUTPUT = 200_000_000  # bytes: 20 million characters and what JSON adds
OPEN_FILES = 64
NICENESS = 10  # answers being written go first
_PR_SET_PDEATHSIG = 1


def confine(parent: int) -> None:
    """Limits this process for good, and binds its life to that of the process `parent`, which started it."""
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_FSIZE, OUTPUT),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most + 1 if kind == resource.RLIMIT_CPU else most))
    os.nice(NICENESS)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call above
        os.kill(os.getpid(), signal.SIGKILL)
