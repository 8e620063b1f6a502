"""Run a tool server as a process, and carry the protocol's messages over its standard streams.

The package's own transport reads lines of any length, and writes the standard error to the worker's log. This module
limits the length of lines, and stores the last errors to explain a failure.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from llm.tools.mcp_failures import Exchange
from llm.tools.mcp_messages import mend_message

EXIT_TIMEOUT = 2.0  # seconds for the process to end after its input is closed, and again after SIGTERM
MAX_STDERR_TAIL = 8_192  # bytes

Arriving = MemoryObjectSendStream[SessionMessage]
Incoming = MemoryObjectReceiveStream[SessionMessage]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def process_streams(
    program: str, arguments: Sequence[str], environment: Mapping[str, str], *, max_bytes: int, exchange: Exchange
) -> AsyncGenerator[tuple[Incoming, Outgoing], None]:
    """Start a process and yield the streams of its messages. End the process when the block is left.

    `max_bytes`: the maximum size of one message. Raises `OSError` if the program cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**get_default_environment(), **environment},
        limit=max_bytes,
        start_new_session=True,  # so that its children can be ended with it
    )
    to_session, incoming = anyio.create_memory_object_stream[SessionMessage](0)
    outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(_read_messages(process, to_session, exchange)),
        asyncio.create_task(_write_messages(process, from_session)),
        asyncio.create_task(_store_stderr_tail(process, exchange)),
    ]
    try:
        yield incoming, outgoing
    finally:
        # Shielded: a stopped turn must not leave a process behind.
        end_task = asyncio.create_task(_end_process(process, tasks, exchange))
        try:
            await asyncio.shield(end_task)
        except asyncio.CancelledError:
            await end_task
            raise
        finally:
            for stream in (to_session, incoming, outgoing, from_session):
                stream.close()


async def _read_messages(
    process: asyncio.subprocess.Process,
    messages: MemoryObjectSendStream[SessionMessage],
    exchange: Exchange,
) -> None:
    assert process.stdout is not None  # noqa: S101 - it was started with pipes
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with messages:
            while True:
                try:
                    line = await process.stdout.readline()
                except ValueError:  # longer than the limit
                    exchange.too_large = True
                    return
                if not line:
                    exchange.ended = True
                    return
                message = _parse_line(line, exchange) if line.strip() else None
                if message is not None:
                    await messages.send(message)


def _parse_line(line: bytes, exchange: Exchange) -> SessionMessage | None:
    """Return the message in a line. None for another line, which is recorded in the exchange."""
    message = mend_message(line)
    if message is None:
        exchange.note_invalid_output(line)
        return None
    return SessionMessage(jsonrpc_message_adapter.validate_json(message, by_name=False))


async def _write_messages(
    process: asyncio.subprocess.Process, messages: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    assert process.stdin is not None  # noqa: S101 - it was started with pipes
    with suppress(OSError):
        async with messages:
            async for item in messages:
                line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(line.encode() + b"\n")
                await process.stdin.drain()


async def _store_stderr_tail(process: asyncio.subprocess.Process, exchange: Exchange) -> None:
    assert process.stderr is not None  # noqa: S101 - it was started with pipes
    while piece := await process.stderr.read(MAX_STDERR_TAIL):
        exchange.stderr = (exchange.stderr + piece)[-MAX_STDERR_TAIL:]


async def _end_process(
    process: asyncio.subprocess.Process, tasks: Sequence["asyncio.Task[None]"], exchange: Exchange
) -> None:
    """Close the input of the process. If it does not end in time, end it and its children."""
    reading, writing, storing_tail = tasks
    reading.cancel()
    writing.cancel()
    assert process.stdin is not None  # noqa: S101 - it was started with pipes
    with suppress(OSError):
        process.stdin.close()
    draining = asyncio.create_task(_discard_output(process, reading))
    if not await _wait_for_exit(process):
        _signal(process, signal.SIGTERM)
        if not await _wait_for_exit(process):
            _signal(process, signal.SIGKILL)
            await _wait_for_exit(process)
    exchange.exit_code = process.returncode if exchange.ended else None
    with suppress(TimeoutError):
        async with asyncio.timeout(0.2):  # its last output may still arrive
            await asyncio.shield(storing_tail)
    for task in (draining, storing_tail):
        task.cancel()
    await asyncio.gather(*tasks, draining, return_exceptions=True)
    transport = getattr(process, "_transport", None)  # no public method closes pipes that a child holds open
    if transport is not None:
        transport.close()


async def _discard_output(process: asyncio.subprocess.Process, reading: "asyncio.Task[None]") -> None:
    """Read and discard the output, so that a writing process notices that its input is closed."""
    await asyncio.gather(reading, return_exceptions=True)
    assert process.stdout is not None  # noqa: S101 - it was started with pipes
    while await process.stdout.read(65_536):
        pass


async def _wait_for_exit(process: asyncio.subprocess.Process) -> bool:
    """Return whether the process ends within `EXIT_TIMEOUT`.

    `wait` would also wait for pipes that a child holds open.
    """
    deadline = asyncio.get_running_loop().time() + EXIT_TIMEOUT
    while process.returncode is None:
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
