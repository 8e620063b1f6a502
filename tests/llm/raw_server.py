"""A server on loopback that answers with a test's bytes, in a thread of its own."""

import asyncio
import datetime
import re
import ssl
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Given the request's head and the connection, writes the answer. The connection is closed afterwards, unless the server
# keeps connections.
Play = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


class RawServer:
    """The server. `heads` and `bodies` are those of the requests in order; only requests with a length have a body.

    `hung_up` is set when a client leaves early.
    """

    def __init__(
        self, play: Play, *, host: str = "127.0.0.2", tls: ssl.SSLContext | None = None, keeps: bool = False
    ) -> None:
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.hung_up = threading.Event()
        self.port = 0
        self._play, self._host, self._tls, self._keeps = play, host, tls, keeps
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *failure: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._answer, self._host, 0, ssl=self._tls)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        running = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.heads.append(head)
                if length := re.search(r"(?i)^content-length: (\d+)", head, re.MULTILINE):
                    self.bodies.append(await reader.readexactly(int(length[1])))
                await self._play(head, writer)
                await writer.drain()
                if not self._keeps:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            writer.close()


def answer(body: bytes | str, *headers: str, status: str = "200 OK", media_type: str = "text/html") -> bytes:
    """A whole HTTP answer; an empty media type leaves its header out."""
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *headers]
    if media_type:
        lines.append(f"Content-Type: {media_type}")
    return "\r\n".join([*lines, "", ""]).encode() + content


def always(whole: bytes) -> Play:
    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(whole)

    return play


def certificate(folder: Path, name: str) -> Path:
    """A file with a key and a certificate, signed by itself, for a name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = folder / f"{name}.pem"
    path.write_bytes(key.private_bytes(pem, *plain) + signed.public_bytes(pem))
    return path
