"""`python -m contrib.cluster.wire PORT TARGET` forwards connections from a port to another one.

It is a connection between two processes that a test can break. When it has ended, connections are refused. While it is
stopped (SIGSTOP), it acts as a network that loses all packets.
"""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import uvloop

from contrib.cluster.process import Process
from tests.product import free_port

PIECE = 65_536  # bytes


class Wire:
    def __init__(self, directory: Path, name: str, target: int) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "contrib.cluster.wire", str(self.port), str(target)]
        self.process = Process(f"wire-{name}", command, directory)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(PIECE):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()


async def _serve(port: int, target: int) -> None:
    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))

    server = await asyncio.start_server(connect, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
