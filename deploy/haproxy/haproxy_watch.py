"""`haproxy_watch.py URL COMMAND...` runs the command when HAProxy accepts connections but sends no answer.

It is a liveness probe like those of Kubernetes. systemd restarts HAProxy when it has exited, but does not notice when
it hangs. The command runs after three time-outs in a row: even a slow machine answers one probe in three. Only Python
is needed.
"""

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from urllib.error import URLError
from urllib.request import urlopen

ANSWER_TIMEOUT = 0.9  # seconds for an answer
TIMES = 3
CHECK_INTERVAL = 1.0  # seconds
STARTS_WITHIN = 2.0  # seconds for HAProxy to start again


def hangs(url: str, patience: float = ANSWER_TIMEOUT) -> bool:
    """Return whether no answer came in time. A refused connection does not count: systemd then restarts HAProxy."""
    try:
        urlopen(url, timeout=patience).close()  # noqa: S310 - the operator's own address
    except TimeoutError:
        return True
    except URLError as error:
        return isinstance(error.reason, TimeoutError)
    except OSError:
        return False
    return False


def missed_in_a_row(silences: Iterable[bool]) -> Iterator[int]:
    """Yield after each probe the number of unanswered probes in a row. After `TIMES` the count starts again."""
    missed = 0
    for silent in silences:
        missed = missed % TIMES + 1 if silent else 0
        yield missed


def watch(url: str, command: Sequence[str]) -> None:
    """Probe HAProxy forever, and run the command each time it hangs."""
    for missed in missed_in_a_row(hangs(url) for _ in repeat(None)):
        if missed == TIMES:
            sys.stderr.write(f"HAProxy has answered nothing at {url} {TIMES} times, and is ended.\n")
            subprocess.run(command, check=False)
            time.sleep(STARTS_WITHIN)
        elif not missed:
            time.sleep(CHECK_INTERVAL)


if __name__ == "__main__":
    watch(sys.argv[1], sys.argv[2:])
