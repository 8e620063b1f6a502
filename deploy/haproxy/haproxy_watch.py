"""`haproxy_watch.py URL COMMAND...` runs the command once HAProxy takes connections and has nothing to say.

What Kubernetes calls a liveness probe: systemd starts HAProxy anew when it has ended, but does not see that it hangs.
Only after three time-outs in a row, since a machine that is merely slow answers one of them. Needs Python alone.
"""

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from urllib.error import URLError
from urllib.request import urlopen

PATIENCE = 0.9  # seconds for an answer
TIMES = 3
EVERY = 1.0  # seconds
STARTS_WITHIN = 2.0  # seconds, after it was ended


def hangs(url: str, patience: float = PATIENCE) -> bool:
    """Whether nothing came in time. A HAProxy that is not there, and refuses, is systemd's business."""
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
    """After each question how many in a row had no answer; after TIMES of them it is counted anew."""
    missed = 0
    for silent in silences:
        missed = missed % TIMES + 1 if silent else 0
        yield missed


def watch(url: str, command: Sequence[str]) -> None:
    """Without end."""
    for missed in missed_in_a_row(hangs(url) for _ in repeat(None)):
        if missed == TIMES:
            sys.stderr.write(f"HAProxy has answered nothing at {url} {TIMES} times, and is ended.\n")
            subprocess.run(command, check=False)
            time.sleep(STARTS_WITHIN)
        elif not missed:
            time.sleep(EVERY)


if __name__ == "__main__":
    watch(sys.argv[1], sys.argv[2:])
