"""`python -m tests.scripted_model --port N`: prints `{"port": N}` and serves until its parent ends."""

import argparse
import asyncio
import ctypes
import json
import os
import signal
import sys

from .server import Server

_PR_SET_PDEATHSIG = 1  # prctl(2)


def _die_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the call
            sys.exit(0)


async def _serve(port: int) -> None:
    chosen = await Server().start(port)
    sys.stdout.write(json.dumps({"port": chosen}) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.scripted_model")
    parser.add_argument("--port", type=int, default=0, help="0 chooses a free one")
    port = parser.parse_args().port
    _die_with_parent(os.getppid())
    asyncio.run(_serve(port))


if __name__ == "__main__":
    main()
