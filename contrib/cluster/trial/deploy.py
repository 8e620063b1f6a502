"""A new version goes out while people wait for long answers: each process is asked to end, in the guide's order."""

import asyncio
import time

import aiohttp

from contrib.cluster.company import Company
from contrib.cluster.process import Process
from contrib.cluster.trial.client import Client
from contrib.cluster.trial.work import Answer, Result, settles

COUNT, SCRIPT = 50, {"tokens": 600, "interval": 0.1, "ttft": 0.2}  # answers of a minute
SAID = f"every process restarted, one after the other, while {COUNT} answers of 60 s stream"
ORDER = ("turns-1", "turns-2", "background-1", "web-1", "web-2", "beat")
FLOWING = 5.0  # seconds that they stream before the first is asked to end
GRACE = 130.0  # seconds, as TimeoutStopSec in deploy/systemd


async def tried(company: Company, session: aiohttp.ClientSession) -> tuple[str, bool]:
    """A line for the table, and whether all was well."""
    client, result = Client(company, session), Result()
    answers = [Answer(client, SCRIPT) for _ in range(COUNT)]
    await asyncio.gather(*(each.begin() for each in answers))
    await asyncio.sleep(FLOWING)
    begun = time.monotonic()
    for name in ORDER:
        await _restarted(company, name)
    took = time.monotonic() - begun
    await asyncio.gather(*(each.settled(result) for each in answers))
    said = f"{result}; {took:.0f} s in all"
    for each in result.wrong:
        print(f"  ! {each}")
    return said, result.became["whole"] == COUNT and not result.wrong


async def _restarted(company: Company, name: str) -> None:
    process: Process = company.processes[name]
    begun = _begun(process)
    process.ask_to_end()

    async def ended() -> bool:
        return not process.alive

    async def back() -> bool:
        return begun != _begun(process) and await asyncio.to_thread(company.ready)

    await settles(ended, GRACE)
    process.kill()
    process.start()
    await settles(back)


def _begun(process: Process) -> int:
    """A number that grows once a worker says that it is there, and of others once they are started."""
    worker = process.name.startswith(("turns", "background"))
    return process.log.read_text(errors="replace").count("[queues]") if worker else process.pid or 0
