"""`make bench-peers` does the same work with Glasshouse and its peers in turn, against the same scripted model.

    make bench-peers                                    everything, about 20 minutes on a quiet machine of two cores
    make bench-peers TABLES="first burst"               only these
    make bench-peers TABLES="first --peer chainlit"     beside one peer; --help lists the options
    make bench-peers TABLES="streams --peer none"       what has a limit of its own, with nothing to install

Tables: start (and memory), first (answers one by one), burst (many sends within half a second), streams (many answers
at once), length (long conversations). Everything listens on loopback alone, and ends with the bench.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from contrib.bench.peers import tables
from contrib.bench.peers.chainlit_peer import Chainlit
from contrib.bench.peers.client import Clients
from contrib.bench.peers.figures import FigureRow, table
from contrib.bench.peers.glasshouse import Glasshouse
from contrib.bench.peers.open_webui import OpenWebUI
from contrib.bench.peers.products import Product, install
from tests.product import ROOT, die_with_parent

ALONE = "none"
PEERS: dict[str, type[Product]] = {"chainlit": Chainlit, "open-webui": OpenWebUI}
MAX_LENGTH = 3600  # seconds after which the bench ends itself
Measure = Callable[[list[Product], Clients, argparse.Namespace], list[FigureRow]]
TABLES: dict[str, Measure] = {
    "start": lambda products, clients, chosen: tables.start(products, clients, chosen.starts),
    "first": lambda products, clients, chosen: tables.first(products, clients, chosen.runs),
    "burst": lambda products, clients, chosen: tables.burst(products, clients, chosen.sends, chosen.rounds),
    "streams": lambda products, clients, chosen: tables.streams(products, clients, chosen.streams, chosen.seconds),
    "length": lambda products, clients, chosen: tables.length(products, clients, chosen.messages, chosen.turns),
}


@contextmanager
def scripted_model() -> Iterator[str]:
    """Run the model in a process of its own, and yield its address for OpenAI's protocol."""
    command = [sys.executable, "-m", "contrib.bench.peers.model"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, process_group=0, preexec_fn=die_with_parent
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        yield f"http://127.0.0.1:{json.loads(line)['port']}/v1"
    finally:
        process.terminate()
        process.wait()


def _chosen() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="make bench-peers", description=__doc__, formatter_class=form)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; none means all")
    parser.add_argument("--peer", choices=[*PEERS, ALONE], action="append", help="may be repeated; without it, all")
    parser.add_argument("--starts", type=int, default=2, help="of each product")
    parser.add_argument("--runs", type=int, default=25, help="answers of the table first")
    parser.add_argument("--rounds", type=int, default=2, help="of every burst")
    parser.add_argument("--sends", default=[25, 50, 100], help="of a burst", type=int, nargs="+")
    parser.add_argument("--streams", default=[1, 25, 100, 300], help="at once", type=int, nargs="+")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long a stream lasts")
    parser.add_argument("--messages", default=[10, 400, 1_000, 10_000], help="of a conversation", type=int, nargs="+")
    parser.add_argument("--turns", type=int, default=5, help="in each conversation of the table length")
    chosen = parser.parse_args()
    if unknown := set(chosen.tables) - set(TABLES):
        parser.error(f"there is no table {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}")
    return chosen


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def _measure(chosen: argparse.Namespace, peers: list[str], out: Path) -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glasshouse-peers-")))
        model = stack.enter_context(scripted_model())
        clients = stack.enter_context(Clients())
        products: list[Product] = []
        kinds: list[type[Product]] = [Glasshouse, *(PEERS[peer] for peer in peers)]
        for kind in kinds:
            products.append(kind(directory / kind.__name__, model))
            stack.callback(products[-1].end)
            products[-1].start()
        for name in chosen.tables or TABLES:
            rows = TABLES[name](products, clients, chosen)
            print(table(name.capitalize(), rows), flush=True)
            (out / f"peers-{name}.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))


def main() -> int:
    chosen = _chosen()
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, _interrupted)
    signal.alarm(MAX_LENGTH)
    peers = [peer for peer in chosen.peer or PEERS if peer != ALONE]
    out = Path(os.environ.get("BENCH_RESULTS", "bench-results"))
    out.mkdir(parents=True, exist_ok=True)
    try:
        for peer in peers:
            install(peer)
        _measure(chosen, peers, out)
    except KeyboardInterrupt:
        print("Stopped; nothing is left running.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
