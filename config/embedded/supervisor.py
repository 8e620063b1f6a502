"""Starts everything in order, waits, stops everything in the opposite order."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from config.embedded.children import Children, Program
from config.embedded.paths import StartError, database_url, held, make_data_dir, redis_url
from config.embedded.services import check_database, check_redis, start_model, start_services

WORKER_STAGE, WEB_STAGE = 2, 3
ANSWER_SECONDS = 60
# Celery warns about root, which is the usual user in a container, on every start.
QUIET = ("-W", "ignore:You're running the worker")
CELERY = (sys.executable, *QUIET, *["-m", "celery", "--quiet", "--skip-checks", "-A", "config"])
ALONE = ("--without-gossip", "--without-mingle", "--without-heartbeat")
# Two processes: what reads and indexes files takes whole seconds of a processor, and answers would stand still.
# Threads of the first only begin answers, which its event loop carries; those of the second do the work.
WORKERS = {"turns": 4, "background": 16}  # threads by queue


@dataclass(frozen=True)
class Site:
    """`database_url` and `redis_url` are None where the embedded service is to be started. Port 0: any free one."""

    data: Path
    host: str
    port: int
    database_url: str | None
    redis_url: str | None


def run(site: Site) -> None:
    """Returns after SIGINT, SIGTERM or SIGHUP, when every child has ended.

    Raises StartError, also with nothing left running, when something keeps it from starting or a child ends by itself.
    """
    make_data_dir(site.data)
    with held(site.data) as descriptor, _listen(site.host, site.port) as listening:
        if site.database_url:
            check_database(site.database_url)
        if site.redis_url:
            check_redis(site.redis_url)
        asyncio.run(_until_stopped(site, listening, descriptor))


def _listen(host: str, port: int) -> socket.socket:
    """Before anything else, and kept: only our web server can answer on it, and early requests wait for it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else "there is no such address"  # getaddrinfo's are negative
        raise StartError(
            f"Port {port} on {host} cannot be opened ({reason}); stop what listens there, or set PORT to another one."
        ) from error


async def _until_stopped(site: Site, listening: socket.socket, held: int) -> None:
    asked = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup means to stay
            asyncio.get_running_loop().add_signal_handler(number, asked.set)
    children = Children(held)
    serving = asyncio.create_task(_serve(children, site, listening))
    stop = asyncio.create_task(asked.wait())
    try:
        await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        await asyncio.wait({serving})
        if not serving.cancelled():
            serving.result()
    finally:
        stop.cancel()
        await children.stop()


async def _serve(children: Children, site: Site, listening: socket.socket) -> None:
    env = {"DATA_DIR": str(site.data)}
    if not site.database_url:
        env["DATABASE_URL"] = database_url(site.data)
    if not site.redis_url:
        env["REDIS_URL"] = redis_url(site.data)
    if model := start_model(children):
        env["BUNDLED_MODEL_URL"] = model
    descriptor = listening.fileno()
    web = children.start(
        Program("web", _python("config.embedded.web", str(descriptor)), WEB_STAGE, env, fds=(descriptor,), waits=True)
    )
    prepare = Program("prepare", _python("config.embedded.prepare"), WORKER_STAGE, env, waits=True)
    services = partial(
        start_services, children, site.data, postgres=site.database_url is None, redis=site.redis_url is None
    )
    seeded = await children.unless_one_ends(children.run(prepare, first=services))
    web.release()
    port = listening.getsockname()[1]
    listening.close()
    for queue, threads in WORKERS.items():
        worker = ["worker", "--pool", "threads", "--concurrency", str(threads), "-Q", queue, "-n", f"{queue}@%h"]
        children.start(Program(f"worker of {queue}", [*CELERY, *worker, *ALONE], WORKER_STAGE, env))
    beat = ["beat", "--pidfile=", "-s", str(site.data / "celerybeat-schedule")]
    children.start(Program("beat", [*CELERY, *beat], WEB_STAGE, env))
    await children.unless_one_ends(_answers(site.host, port))
    _announce(site.host, port, seeded)
    await children.unless_one_ends(asyncio.Event().wait())


def _python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


async def _answers(host: str, port: int) -> None:
    """One request is enough: it waits in the socket's queue until the web server takes it."""
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(local, port)
            writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            line = (await reader.readline()).decode(errors="replace")
            writer.close()
    except OSError as error:
        raise StartError(f"The web server does not answer on port {port} ({error}).") from error
    if not line.startswith("HTTP/1.1 2"):
        raise StartError(f"The web server answers /livez with {line.strip()!r}; the lines above say why.")


def _announce(host: str, port: int, seeded: str) -> None:
    shown = f"[{host}]" if ":" in host else host
    lines = [f"Glasshouse is ready at http://{shown}:{port}"]
    admin = json.loads(seeded or "{}").get("admin")
    if admin:
        given = (
            "the password you chose" if not admin["password"] else f"the password {admin['password']} (shown this once)"
        )
        lines.append(f"Sign in as {admin['username']} with {given}.")
    with contextlib.suppress(OSError):
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
