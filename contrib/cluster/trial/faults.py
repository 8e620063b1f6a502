"""The faults: the beginning and end of each, and the answers of `/readyz` that are right meanwhile.

To add a fault: 1. Write functions that begin and end it. 2. Add a `Fault` to `BEHIND`, or to `faults` if it concerns
the proxy. 3. Run `make test-cluster FAULTS=its-name`, which adds its row to docs/operate/trials.md.
"""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from contrib.cluster.company import Company
from contrib.cluster.postgres import QUERY_WAIT_TIMEOUT
from contrib.cluster.process import ClusterError
from contrib.cluster.proxy import Kind

Act = Callable[[Company], object]
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
WEBS = frozenset({"web-1", "web-2"})
NOBODY = frozenset[str]()
ANSWERED_WITHIN = 5.0  # seconds for any request
NOTICED_AFTER = 3.0  # seconds until an operator or Patroni acts on the loss of PostgreSQL or its replica
MOVED_WITHIN = 30.0  # seconds in which Sentinel promotes a replica of Redis
ROOM = "64k"  # size of a full disk
CLOCK = "turns-3"


def _nothing(company: Company) -> None:
    pass


@dataclass(frozen=True)
class Fault:
    """A fault that lasts `seconds` from `begin` to `end`.

    `unready`: the web processes whose `/readyz` must not be 200 meanwhile. The others must answer 200. None: any status
    is right. `before` runs before the work begins, `after` once it is settled. `answered_within`: the longest time of a
    request, in seconds.
    """

    name: str
    description: str
    begin: Act
    end: Act = _nothing
    seconds: float = 0.0
    unready: frozenset[str] | None = NOBODY
    before: Act = _nothing
    after: Act = _nothing
    answered_within: float = ANSWERED_WITHIN


def _kill(name: str, unready: frozenset[str] | None = NOBODY) -> Fault:
    description = f"kill -9 of {name}, started again after 2 s"
    return Fault(
        f"kill-{name}", description, lambda company: company.processes[name].kill(), seconds=4.0, unready=unready
    )


def _freeze(
    name: str, seconds: float, unready: frozenset[str] | None = NOBODY, fault: str = "", description: str = ""
) -> Fault:
    def send(number: signal.Signals) -> Act:
        return lambda company: company.processes[name].signal(number)

    description = description or f"{name} stopped (SIGSTOP) for {seconds:g} s"
    stop, go_on = send(signal.SIGSTOP), send(signal.SIGCONT)
    return Fault(fault or f"stop-{name}", description, stop, go_on, seconds, unready)


def _cut(wire: str, who: str, whom: str, unready: frozenset[str] | None = NOBODY) -> Fault:
    description = f"the network between {who} and {whom} loses everything for 20 s"
    return _freeze(f"wire-{wire}", 20.0, unready, f"cut-{wire}", description)


def _with_waiting(fault: Fault) -> Fault:
    """Allow requests to wait until the fault ends, since their SQL statements wait for the database."""
    return replace(fault, answered_within=fault.seconds + ANSWERED_WITHIN)


def _behind_pgbouncer(fault: Fault) -> Fault:
    """Allow requests to wait as long as PgBouncer waits for an absent PostgreSQL."""
    return replace(fault, answered_within=QUERY_WAIT_TIMEOUT + ANSWERED_WITHIN)


def _away(name: str, seconds: float, unready: frozenset[str] | None, fault: str, description: str) -> Fault:
    def go(company: Company) -> None:
        company.processes[name].should_run = False
        company.processes[name].kill()

    return Fault(fault, description, go, lambda company: company.processes[name].start(), seconds, unready)


def _fail_over(company: Company) -> None:
    company.postgres.first.process.should_run = False
    company.postgres.first.process.kill()
    time.sleep(NOTICED_AFTER)
    company.postgres.fail_over()
    company.pgbouncer.point(company.postgres.first.port)


def _hang(company: Company) -> None:
    company.postgres.first.process.signal(signal.SIGSTOP)


def _lose_replica(company: Company) -> None:
    """Cut the replica off. Commits wait until the primary goes on alone, which Patroni would order."""
    company.processes["wire-replica"].signal(signal.SIGSTOP)
    time.sleep(NOTICED_AFTER)
    company.postgres.go_alone()


def _find_replica(company: Company) -> None:
    company.processes["wire-replica"].signal(signal.SIGCONT)
    company.postgres.wait_for_replica()


def _lose_redis(company: Company) -> None:
    company.redis.process.should_run = False
    company.redis.process.kill()
    _moves(company)


def _hand_redis_over(company: Company) -> None:
    assert company.pair
    company.pair.hand_over()
    _moves(company)


def _moves(company: Company) -> None:
    """Wait until Redis has failed over. This blocks the thread of `begin` only."""
    until = time.monotonic() + MOVED_WITHIN
    while not (company.pair and company.pair.moved()):
        if time.monotonic() > until:
            raise ClusterError(f"Redis's replica has not taken its place within {MOVED_WITHIN:g} s; see redis-*.log.")
        time.sleep(0.2)


def _memory(room: str) -> Act:
    def set_to(company: Company) -> None:
        with company.redis.client as client:
            client.config_set("maxmemory", room)

    return set_to


def _flush(company: Company) -> None:
    with company.redis.client as client:
        client.flushall()


def _fill_disks(company: Company) -> None:
    """Fill the disks on which uploads arrive before they go to the bucket."""
    for place in _arrivals(company):
        _run("mount", "-t", "tmpfs", "-o", f"size={ROOM},mode=700", "none", str(place))


def _empty_disks(company: Company) -> None:
    for place in _arrivals(company):
        _run("umount", "-l", str(place))


def _arrivals(company: Company) -> Iterator[Path]:
    for name in sorted(WEBS):
        yield company.directory / name / "files"


def _run(*command: str) -> None:
    done = subprocess.run([shutil.which(command[0]) or command[0], *command[1:]], capture_output=True, text=True)
    if done.returncode:
        raise ClusterError(f"{' '.join(command)} failed, which needs root: {done.stderr}")


def _clock(seconds: int) -> Fault:
    shift = f"{seconds:+d}s"
    description = f"a worker's clock is {abs(seconds) // 60} minutes {'ahead' if seconds > 0 else 'behind'} for 40 s"

    def start(company: Company) -> None:
        """Start a third worker with a wrong clock, so that the other workers keep running."""
        if not FAKETIME:
            raise ClusterError("Install Debian's package faketime first.")
        process = company.product.process(CLOCK, "glasshouse-turns@", "3")
        company.own[CLOCK] = process
        process.start(LD_PRELOAD=str(FAKETIME[0]), FAKETIME=shift, DONT_FAKE_MONOTONIC="1")
        company.until(lambda: "turns" in process.tail(20_000), "the third worker is there")
        time.sleep(10)  # seconds in which it loads and connects

    def stop(company: Company) -> None:
        company.own.pop(CLOCK).stop(60.0)

    name = "clock-ahead" if seconds > 0 else "clock-behind"
    return Fault(name, description, _nothing, seconds=40.0, before=start, after=stop)


BEHIND = (
    _kill("turns-1"),
    _kill("web-1", None),
    _away("redis", 60.0, WEBS, "redis-away", "Redis away for 60 s (refuses connections)"),
    _freeze("redis", 15.0, WEBS, "redis-hangs", "Redis hangs for 15 s (SIGSTOP)"),
    _kill("pgbouncer", None),
    _with_waiting(_cut("pgbouncer-postgres", "PgBouncer", "PostgreSQL", WEBS)),
    # From here on PgBouncer uses the other PostgreSQL directly, not the line that was cut.
    _behind_pgbouncer(Fault(
        "postgres-fails-over", "PostgreSQL killed; its replica takes its place after 3 s", _fail_over, unready=None,
        after=lambda company: company.postgres.follow(),
    )),
    _away("rabbitmq", 30.0, NOBODY, "broker-away", "the broker (RabbitMQ) away for 30 s"),
    _freeze("turns-1", 45.0),
    _freeze("web-1", 15.0, frozenset({"web-1"})),
    Fault("redis-flushed", "Redis flushed (FLUSHALL)", _flush, seconds=1.0),
    Fault("redis-full", "Redis full (maxmemory, noeviction) for 20 s", _memory("1"), _memory("0"), 20.0, None),
    _kill("redis", None),
    # The old primary comes back as a primary, until Sentinel makes it follow the new one.
    Fault(
        "redis-fails-over", "Redis's first killed; Sentinel has the replica take its place, and the old one comes back",
        _lose_redis, lambda company: company.redis.process.start(), unready=None,
        before=lambda company: company.pair_redis(), after=lambda company: company.part_redis(),
    ),
    Fault(
        "redis-handed-over", "Sentinel is told to hand Redis over: the first becomes a replica while all are connected",
        _hand_redis_over, unready=None,
        before=lambda company: company.pair_redis(), after=lambda company: company.part_redis(),
    ),
    _behind_pgbouncer(Fault(
        "kill-postgres", "kill -9 of PostgreSQL, started again after 2 s",
        lambda company: company.postgres.first.process.kill(), seconds=4.0, unready=None,
    )),
    _with_waiting(Fault(
        "postgres-hangs", "PostgreSQL hangs for 15 s (SIGSTOP of all its processes)", _hang,
        lambda company: company.postgres.first.process.signal(signal.SIGCONT), 15.0, WEBS,
    )),
    _with_waiting(_freeze("pgbouncer", 15.0, WEBS)),
    _freeze("rabbitmq", 20.0, NOBODY, "broker-hangs", "the broker hangs for 20 s (SIGSTOP)"),
    _kill("rabbitmq"),
    _kill("background-1"),
    _freeze("background-1", 20.0),
    _kill("beat"),
    _freeze("beat", 20.0),
    _away("wire-all-bucket", 20.0, NOBODY, "storage-away", "the bucket's server away for 20 s (refuses connections)"),
    _freeze("bucket", 20.0, NOBODY, "storage-hangs", "the bucket's server hangs for 20 s (SIGSTOP)"),
    Fault("disk-full", "the disk on which uploads arrive full for 20 s", _fill_disks, _empty_disks, 20.0),
    _clock(600),
    _clock(-600),
    _cut("web-2-redis", "web-2", "Redis", frozenset({"web-2"})),
    _with_waiting(_cut("web-2-pgbouncer", "web-2", "PgBouncer", frozenset({"web-2"}))),
    _cut("turns-2-redis", "turns-2", "Redis"),
    _cut("turns-2-pgbouncer", "turns-2", "PgBouncer"),
    _cut("background-1-broker", "background-1", "the broker"),
    Fault(
        "cut-postgres-replica", "the network between PostgreSQL and its replica loses everything for 20 s",
        _lose_replica, _find_replica, 20.0,
    ),
)  # fmt: skip


def faults(proxy: Kind) -> tuple[Fault, ...]:
    """Return the faults of a cluster behind this proxy, in order. A proxy without a watchdog is not frozen."""
    watched = (_freeze(proxy.program, 15.0), _kill(proxy.watch), _freeze(proxy.watch, 15.0)) if proxy.watch else ()
    cut = _cut(f"{proxy.program}-web-2", proxy.called, "web-2")
    return (*BEHIND, _kill(proxy.program), *watched, cut)
