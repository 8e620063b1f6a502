"""A deploy while long answers stream: every process is restarted, in the order of the guide."""

import asyncio
import time

import aiohttp

from contrib.cluster.company import Company
from contrib.cluster.process import Process
from contrib.cluster.trial.client import Client
from contrib.cluster.trial.work import StreamedAnswer, TrialResult, settles

COUNT, SCRIPT = 50, {"tokens": 600, "interval": 0.1, "ttft": 0.2}  # each answer takes a minute
DESCRIPTION = f"every process restarted, one after the other, while {COUNT} answers of 60 s stream"
ORDER = ("turns-1", "turns-2", "background-1", "web-1", "web-2", "beat")
FLOWING = 5.0  # seconds of streaming before the first restart
GRACE = 130.0  # seconds; TimeoutStopSec in deploy/systemd


async def run_trial(company: Company, session: aiohttp.ClientSession) -> tuple[str, bool]:
    """Run the trial. Returns a line for the table, and whether all answers arrived without a fault."""
    client, result = Client(company, session), TrialResult()
    answers = [StreamedAnswer(client, SCRIPT) for _ in range(COUNT)]
    await asyncio.gather(*(each.begin() for each in answers))
    await asyncio.sleep(FLOWING)
    began = time.monotonic()
    for name in ORDER:
        await _restarted(company, name)
    took = time.monotonic() - began
    await asyncio.gather(*(each.settled(result) for each in answers))
    summary = f"{result}; {took:.0f} s in all"
    for each in result.wrong:
        print(f"  ! {each}")
    return summary, result.became["whole"] == COUNT and not result.wrong


async def _restarted(company: Company, name: str) -> None:
    process: Process = company.processes[name]
    before = _begun(process)
    process.ask_to_end()

    async def ended() -> bool:
        return not process.alive

    async def back() -> bool:
        return before != _begun(process) and await asyncio.to_thread(company.ready)

    await settles(ended, GRACE)
    process.kill()
    process.start()
    await settles(back)


def _begun(process: Process) -> int:
    """Return a number that a restart changes: the count of start notices in a worker's log, else the process id."""
    worker = process.name.startswith(("turns", "background"))
    return process.log.read_text(errors="replace").count("[queues]") if worker else process.pid or 0
