"""The supervisor starts all processes in order, restarts them when they end, and stops them in the opposite order.

1. `run` locks the data directory and opens the port.
2. `_serve` starts PostgreSQL, Redis and the model, migrates, and forks the web process and the workers.
3. `Children` restarts each process that exits or is killed. The supervisor keeps the port open, so requests wait for
   the new web process.
4. If a server never becomes ready, everything is stopped: see `Children.start`.
"""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from config.embedded import product
from config.embedded.children import Child, ChildProgram, Children
from config.embedded.paths import (
    OTHERS_MODE_BITS,
    StartError,
    close_to_others,
    database_url,
    lock_data_dir,
    make_data_dir,
    redis_url,
)
from config.embedded.services import EXPENDABLE_SCORE, check_database, check_redis, start_model, start_services

WORKER_STAGE = 2
WEB_STAGE = 3
ANSWER_SECONDS = 60
RETRY_SECONDS = 0.2
# Two worker processes: reading and indexing a file uses a processor for seconds, which would delay answers in the same
# process. Answers run in the event loop of the first. All other work runs in threads of the second.
WORKERS = {"turns": 1, "background": 16}  # threads by queue
BACKGROUND_NICENESS = 10  # files and imports give way to answers
MIN_MEMORY_LIMIT = 2 << 30  # bytes that a process may allocate, even on a small machine


@dataclass(frozen=True)
class StartOptions:
    """The settings of a start. If `database_url` or `redis_url` is None, the embedded service is started.

    Port 0 means any free port.
    """

    data: Path
    host: str
    port: int
    database_url: str | None
    redis_url: str | None


def run(options: StartOptions) -> None:
    """Run the product until SIGINT, SIGTERM or SIGHUP, and return when every child has ended.

    Raises StartError if the product cannot start, after it has stopped every process. A child that ends later is
    restarted.
    """
    os.umask(OTHERS_MODE_BITS)  # children inherit it, so other users cannot read their files either
    make_data_dir(options.data)
    close_to_others(options.data)
    with lock_data_dir(options.data) as descriptor, _listen(options.host, options.port) as listening:
        if options.database_url:
            check_database(options.database_url)
        if options.redis_url:
            check_redis(options.redis_url)
        asyncio.run(_until_stopped(options, listening, descriptor))


def _listen(host: str, port: int) -> socket.socket:
    """Open the port before any process starts, and keep it open.

    So only our web server can answer on it, and early requests wait for the server.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else "there is no such address"  # errors of getaddrinfo are negative
        raise StartError(
            f"Port {port} on {host} cannot be opened ({reason}); stop the program that uses it, or set PORT to another"
            " port."
        ) from error


async def _until_stopped(options: StartOptions, listening: socket.socket, lock: int) -> None:
    stop_requested = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:  # nohup ignores it
            asyncio.get_running_loop().add_signal_handler(signum, stop_requested.set)
    children = Children(lock)
    serving = asyncio.create_task(_serve(children, options, listening))
    stop = asyncio.create_task(stop_requested.wait())
    try:
        await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        await asyncio.wait({serving})
        if not serving.cancelled():
            serving.result()
    finally:
        stop.cancel()
        listening.close()  # so that new requests are refused at once
        await children.stop()


async def _serve(children: Children, options: StartOptions, listening: socket.socket) -> None:
    env = {"DATA_DIR": str(options.data)}
    if not options.database_url:
        env["DATABASE_URL"] = database_url(options.data)
    if not options.redis_url:
        env["REDIS_URL"] = redis_url(options.data)
    key = secrets.token_urlsafe(32)  # a new key for each start, so that a leaked key becomes useless
    model = start_model(children, key)
    services = start_services(
        children, options.data, postgres=options.database_url is None, redis=options.redis_url is None
    )
    await children.unless_one_fails(_load_while_starting(services, product.load))
    prepare = ChildProgram("prepare", [], WORKER_STAGE, env, main=partial(product.prepare, model, key))
    seed_output = await children.unless_one_fails(children.run(prepare))
    product.use_model(model)
    main = partial(product.web, listening.fileno())
    program = ChildProgram("web", [], WEB_STAGE, env, main=main, memory=_memory_limit(), oom_score=EXPENDABLE_SCORE)
    web = children.start(program)
    turns = _start_worker(children, env, listening, "turns")
    schedule = str(options.data / "celerybeat-schedule")
    _start_worker(children, env, listening, "background", schedule=schedule, niceness=BACKGROUND_NICENESS)
    await children.unless_one_fails(asyncio.gather(_wait_until_ready(web, listening), turns.ready))
    _announce(options.host, listening.getsockname()[1], seed_output)
    await children.unless_one_fails(asyncio.Event().wait())


def _start_worker(
    children: Children,
    env: Mapping[str, str],
    listening: socket.socket,
    queue: str,
    *,
    schedule: str = "",
    niceness: int = 0,
) -> Child:
    work = product.worker(queue, WORKERS[queue], schedule)

    def main() -> None:
        listening.close()  # inherited by the fork; a worker does not serve it
        work()

    return children.start(
        ChildProgram(
            f"worker of {queue}",
            [],
            WORKER_STAGE,
            env,
            ready_line=product.READY,
            niceness=niceness,
            main=main,
            memory=_memory_limit(),
            oom_score=EXPENDABLE_SCORE,
        )
    )


def _memory_limit() -> int:
    """Return the bytes that one process may allocate: half of the machine's memory, but at least `MIN_MEMORY_LIMIT`.

    A request or job that needs more fails, so the kernel does not have to kill the process.
    """
    return max(MIN_MEMORY_LIMIT, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


async def _load_while_starting(starting: Coroutine[Any, Any, None], load: Callable[[], None]) -> None:
    """Start the services and load the product at the same time.

    On return the loading thread has ended, since a fork copies only the thread that forks.
    """
    with ThreadPoolExecutor(1) as thread:
        await asyncio.gather(starting, asyncio.get_running_loop().run_in_executor(thread, load))


async def _wait_until_ready(web: Child, listening: socket.socket) -> None:
    """Wait until the web server answers, and mark it as ready.

    Raises StartError if it answers with an error, or not in time. The request waits in the socket's queue until a web
    process accepts it. If the web process ends before it answers, the request is repeated.
    """
    host, port = listening.getsockname()[:2]
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    line = ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS):
            while not (line := await _first_line(local, port)):  # noqa: ASYNC110 - another process sets no event
                await asyncio.sleep(RETRY_SECONDS)
    if not line:
        raise StartError(f"The web server does not answer on port {port}; the lines above say why.")
    if not line.startswith("HTTP/1.1 2"):
        raise StartError(f"The web server answers /livez with {line!r}; the lines above say why.")
    web.set_ready()


async def _first_line(host: str, port: int) -> str:
    """Return the first line of the answer to `/livez`; empty if the connection was closed before an answer."""
    try:
        reader, writer = await asyncio.open_connection(host, port)
        with contextlib.closing(writer):
            writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return (await reader.readline()).decode(errors="replace").strip()
    except ConnectionError:
        return ""


def _announce(host: str, port: int, seed_output: str) -> None:
    shown = f"[{host}]" if ":" in host else host
    lines = [f"Glasshouse is ready at http://{shown}:{port}"]
    admin = json.loads(seed_output or "{}").get("admin")
    if admin:
        password = (
            "the password you chose" if not admin["password"] else f"the password {admin['password']} (shown this once)"
        )
        lines.append(f"Sign in as {admin['username']} with {password}.")
    with contextlib.suppress(OSError):
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
