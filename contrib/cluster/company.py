"""All services of an installation: their addresses for each other, and the order of their start and stop."""

import secrets
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import boto3
import redis

from contrib.cluster.failover import Pair, follows
from contrib.cluster.postgres import PgBouncer, Postgres, url
from contrib.cluster.process import ClusterError, Process
from contrib.cluster.product import ProductProcesses, example
from contrib.cluster.proxy import NAME, Kind, Ports, Proxy
from contrib.cluster.servers import BUCKET, KEY, RABBITMQ, SECRET, Bucket, ModelServer, RabbitMQ, Valkey
from contrib.cluster.wire import Wire
from tests.product import free_port

WAIT = 120.0  # seconds for a service to answer, on a busy machine
STOP_SECONDS = 5.0
SECOND = ("web-2", "turns-2", "background-1")  # these act as a second machine, whose lines can be cut
PROGRAMS = {"pgbouncer": "pgbouncer", RABBITMQ: "rabbitmq-server", "epmd": "rabbitmq-server"}


class Company:
    """All processes of an installation.

    `directory` must not exist yet. `port` is the port for HTTPS. `wired`: lines between processes can be cut.
    """

    def __init__(self, directory: Path, port: int, proxy: Kind, *, wired: bool = False, drain: int = 120) -> None:
        needed = PROGRAMS | {proxy.program: proxy.package}
        if missing := sorted({package for name, package in needed.items() if not shutil.which(name)}):
            raise ClusterError(f"Install Debian's packages first: {', '.join(missing)}; make cluster-packages does.")
        if directory.exists():
            raise ClusterError(f"{directory} is there already; remove it, or name another one in CLUSTER.")
        self.directory, self.port, self.wired = directory, port, wired
        directory.mkdir(mode=0o711, parents=True)
        self.wires: dict[str, Wire] = {}
        self.postgres, self.redis = Postgres(directory, wired=wired), Valkey(directory)
        self.broker, self.bucket, self.model = RabbitMQ(directory), Bucket(directory), ModelServer(directory)
        self.pgbouncer = PgBouncer(directory)
        self.pair: Pair | None = None  # set while Redis can fail over
        self.token = ""
        self.web_ports = {"web-1": free_port(), "web-2": free_port()}
        self.product = ProductProcesses(directory, self._environment(drain))
        self.own = dict(self._own())
        first, second = self.web_ports.values()
        webs = first, self._line(proxy.program, "web-2", second)
        self.proxy = Proxy(proxy, directory, Ports(port, free_port(), free_port(), webs))

    @property
    def url(self) -> str:
        return f"https://{NAME}:{self.port}"

    @property
    def processes(self) -> dict[str, Process]:
        """Return the processes by name, in the order of their start."""
        services = (
            self.postgres.first.process, self.postgres.second.process, self.pgbouncer.process, self.redis.process,
            self.broker.mapper, self.broker.process, self.bucket.process, self.model.process,
        )  # fmt: skip
        lines = (*([self.postgres.line] if self.postgres.line else ()), *self.wires.values())
        wires = (wire.process for wire in lines)
        pair = self.pair.processes if self.pair else ()
        return {each.name: each for each in (*services, *pair, *wires, *self.own.values(), *self.proxy.processes)}

    def start(self, say: Callable[[str], None] = print) -> None:
        """Start everything. Returns when web processes and workers answer. Raises ClusterError."""
        say("PostgreSQL and its replica")
        self.postgres.create()
        self.pgbouncer.point(self._line("pgbouncer", "postgres", self.postgres.first.port))
        say("PgBouncer, Valkey, RabbitMQ, the bucket, the scripted model")
        for process in self.processes.values():
            if not process.alive and process not in (*self.own.values(), *self.proxy.processes):
                process.start()
        self._services_answer()
        say("Tables, rows, a provider, an administrator")
        self._fill()
        say(f"Web processes, workers, beat, {self.proxy.kind.called}")
        for process in (*self.own.values(), *self.proxy.processes):
            process.start()
        self.until(self.ready, "the web processes and workers are ready")

    def stop(self) -> None:
        """Stop the proxy and the product, then the services. Kill a process that does not end in a few seconds."""
        proxy_and_product = (*reversed(self.proxy.processes), *self.own.values())
        for group in (proxy_and_product, [each for each in self.processes.values() if each not in proxy_and_product]):
            for process in group:
                process.ask_to_end()
            deadline = time.monotonic() + STOP_SECONDS
            for process in group:
                process.stop(max(0.1, deadline - time.monotonic()))

    def tend(self) -> list[str]:
        """Restart processes that have ended by themselves, as systemd would. Returns their names."""
        return [name for name, process in self.processes.items() if process.tend()]

    def pair_redis(self) -> None:
        """Make Redis able to fail over, and use it as the broker too, as in an installation without RabbitMQ."""
        pair = self.pair = Pair(self.directory, self.redis)
        pair.start()
        self.until(pair.follow, "Redis has a replica")
        self.until(pair.watched, "Sentinel watches over it")
        address = f"redis://127.0.0.1:{pair.port}"
        self._restart(REDIS_URL=f"{address}/0", BROKER_URL=f"{address}/1")

    def part_redis(self) -> None:
        """Undo `pair_redis`: the first Redis runs alone again, with the data of the pair."""
        if (pair := self.pair) is None:
            return
        self.until(lambda: follows(self.redis) or not pair.moved(), "the old first follows")
        pair.stop()
        self.pair = None
        self._restart()

    def _restart(self, **environment: str) -> None:
        """Restart all of the product's processes at once, with these variables."""
        for process in self.own.values():
            process.ask_to_end()
        for process in self.own.values():
            process.stop()
            process.start(**environment)
        self.until(self.ready, "the product is ready again")

    def ready(self) -> bool:
        return all(self.readiness(name) == (200, True) for name in self.web_ports)

    def readiness(self, name: str, seconds: float = 4.0) -> tuple[int, bool]:
        """Return the status of a web process's `/readyz`, and whether it sees workers. Status 0: no answer in time."""
        request = Request(f"http://127.0.0.1:{self.web_ports[name]}/readyz", headers={"Host": NAME})
        try:
            with urlopen(request, timeout=seconds) as answer:  # noqa: S310 - an address of ours
                return answer.status, b'"worker": "ok"' in answer.read()
        except URLError as error:
            return getattr(error, "code", 0), False
        except OSError:
            return 0, False

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.proxy.certificate)

    def until(self, condition: Callable[[], object], what: str, seconds: float = WAIT) -> None:
        began = time.monotonic()
        while not condition():
            if dead := [each for each in self.processes.values() if each.should_run and not each.alive]:
                raise ClusterError("\n".join(f"{each.name} has ended:\n{each.tail()}" for each in dead))
            if time.monotonic() - began > seconds:
                raise ClusterError(f"It did not happen within {seconds:g} s that {what}; see {self.directory}/*.log.")
            time.sleep(0.2)

    def _line(self, who: str, whom: str, port: int) -> int:
        """Return the port at which `who` reaches `whom`. If the lines can be cut, it is the port of a wire."""
        if not self.wired:
            return port
        name = f"{who}-{whom}"
        self.wires[name] = Wire(self.directory, name, port)
        return self.wires[name].port

    def _environment(self, drain: int) -> dict[str, str]:
        bucket = self._line("all", "bucket", self.bucket.port)
        return {
            **example(),
            "SECRET_KEY": secrets.token_urlsafe(50),
            "DATABASE_URL": self.pgbouncer.url,
            "REDIS_URL": f"redis://127.0.0.1:{self.redis.port}/0",
            "BROKER_URL": f"amqp://guest:guest@127.0.0.1:{self.broker.port}//",
            "STORAGE_URL": f"s3://{KEY}:{SECRET}@{BUCKET}?endpoint=http://127.0.0.1:{bucket}&region=us-east-1",
            "SERVER_SIDE_CURSORS": "false",
            "PREPARED_STATEMENTS": "false",
            "ALLOWED_HOSTS": NAME,
            "CSRF_TRUSTED_ORIGINS": self.url,
            "ADMIN_PASSWORD": "admin-of-the-cluster",
            "DRAIN_SECONDS": str(drain),
            # All clients act as one person, so the limits per person must not apply.
            "LIVE_TURNS": "0",
            "CONNECTIONS_AT_ONCE": "1000",
        }

    def _own(self) -> Iterator[tuple[str, Process]]:
        units = {"web-1": "web", "web-2": "web", "turns-1": "turns", "turns-2": "turns", "background-1": "background"}
        for name, unit in units.items():
            instance = str(self.web_ports.get(name, name.rpartition("-")[2]))
            lines = self._lines(name) if name in SECOND and self.wired else {}
            yield name, self.product.process(name, f"glasshouse-{unit}@", instance, **lines)
        yield "beat", self.product.process("beat", "glasshouse-beat")

    def _lines(self, name: str) -> dict[str, str]:
        broker = self._line(name, "broker", self.broker.port)
        return {
            "DATABASE_URL": url(self._line(name, "pgbouncer", self.pgbouncer.port)),
            "REDIS_URL": f"redis://127.0.0.1:{self._line(name, 'redis', self.redis.port)}/0",
            "BROKER_URL": f"amqp://guest:guest@127.0.0.1:{broker}//",
        }

    def _services_answer(self) -> None:
        for name, port in (("RabbitMQ", self.broker.port), ("the bucket", self.bucket.port)):
            self.until(partial(_listens, port), f"{name} answers")
        self.until(lambda: _pings(self.redis.port), "Valkey answers")
        for port in (self.pgbouncer.port, *(wire.port for wire in self.wires.values())):
            self.until(partial(_listens, port), f"something answers at port {port}")

    def _fill(self) -> None:
        endpoint = f"http://127.0.0.1:{self.bucket.port}"
        keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket=BUCKET)
        direct = {"DATABASE_URL": url(self.postgres.first.port)}
        self.token = self.product.run("contrib.cluster.rows", self.model.url, **direct).split()[-1]


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _pings(port: int) -> bool:
    try:
        with redis.Redis(port=port, socket_timeout=2) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False
