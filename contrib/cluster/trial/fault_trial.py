"""Try one fault under load. Report the results of work, requests and readiness checks, and the time until recovery.

1. The fault's `before` runs, then answers, uploads and other work begin (`LiveWork`).
2. The fault begins, lasts its time, and ends. Meanwhile the trial requests `/readyz` every second.
3. The trial waits until both web processes are ready and a question is answered, then until all work has ended.
4. It judges the outcome, and the fault's `after` runs.
"""

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field

import aiohttp

from contrib.cluster.company import Company
from contrib.cluster.trial.client import Client, TimedRequest, slowest
from contrib.cluster.trial.faults import WEBS, Fault
from contrib.cluster.trial.work import (
    OVER,
    LiveWork,
    SlowUpload,
    TrialResult,
    ask,
    conversation,
    conversation_with_summary,
    status_of,
)

FLOWING = 4.0  # seconds that answers stream before the fault begins
BACK_WITHIN = 30.0  # seconds after the end of a fault
LOOKED_FOR = 150.0  # seconds that the trial waits for recovery
NOTICES = 7.0  # seconds until a process notices that a service is down, or up again


@dataclass
class FaultOutcome:
    """The outcome of a trial.

    `back`: seconds from the fault's end until recovery; None: never. `readiness`: by web process, the times of each
    request and response, and the status. `wrong`: sentences about failures.
    """

    fault: Fault
    results: dict[str, TrialResult] = field(default_factory=dict)
    requests: list[TimedRequest] = field(default_factory=list)
    back: float | None = None
    readiness: dict[str, list[tuple[float, float, int]]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)

    @property
    def late(self) -> list[TimedRequest]:
        return [request for request in self.requests if request.seconds > self.fault.answered_within]

    def ready_words(self, began: float, ended: float) -> str:
        """Return the statuses of `/readyz` in words, and add wrong ones to `wrong`."""
        statuses_of = {
            name: [
                status
                for asked_at, answered_at, status in self.readiness[name]
                if began + NOTICES < asked_at and answered_at < ended
            ]
            for name in WEBS
        }
        for name, statuses in statuses_of.items():
            if self.fault.unready is None or not statuses:
                continue
            if (name in self.fault.unready) == (200 in statuses):
                self.wrong.append(f"/readyz of {name} was {sorted(set(statuses))} meanwhile")
        words = {
            name: "/".join(str(status or "none") for status in sorted(set(statuses_of[name]))) or "—"
            for name in statuses_of
        }
        return (
            words["web-1"] if len(set(words.values())) == 1 else ", ".join(f"{n} {w}" for n, w in sorted(words.items()))
        )


class FaultTrial:
    """Tries faults on one cluster."""

    def __init__(self, company: Company, session: aiohttp.ClientSession) -> None:
        self.company, self.session = company, session

    async def begin(self) -> None:
        """Create, for all faults, the persona whose answers ask for permission and the conversation with a summary."""
        client = Client(self.company, self.session)
        fields = {"name": "Trial", "instructions": "You are being tried.", "tools": ["open_url"]}
        self.persona = (await client.insistent("POST", "personas/", fields))["id"]
        self.place = await conversation_with_summary(client)

    async def run(self, fault: Fault) -> "tuple[FaultOutcome, str]":
        """Try a fault. Return the outcome, and the statuses of `/readyz` in words."""
        fault.before(self.company)
        outcome, client = FaultOutcome(fault), Client(self.company, self.session)
        work = LiveWork(client, self.persona, self.place)
        await work.begin()
        await asyncio.sleep(FLOWING)
        watching = asyncio.create_task(self._watch(outcome))
        began = time.monotonic()
        try:
            await asyncio.to_thread(fault.begin, self.company)  # some take seconds
            slow_upload = SlowUpload(client, seconds=0.5)
            await slow_upload.begin()
            work.parts["uploads"].append(slow_upload)
            await asyncio.sleep(fault.seconds)
        finally:
            fault.end(self.company)  # after an error, too; otherwise the fault's mounts would stay
        ended = time.monotonic()
        outcome.back = await self._back(ended)
        watching.cancel()
        outcome.results = await work.settled()
        outcome.requests = [each for each in client.requests if each.at + each.seconds > began and each.at < ended + 5]
        words = outcome.ready_words(began, ended)
        self._judge(outcome)
        fault.after(self.company)
        return outcome, words

    def _judge(self, outcome: FaultOutcome) -> None:
        outcome.wrong += [sentence for result in outcome.results.values() for sentence in result.wrong]
        if outcome.back is None or outcome.back > BACK_WITHIN:
            outcome.wrong.append(f"all was back after {outcome.back} s")
        for each in sorted(outcome.late, key=lambda each: -each.seconds)[:3]:
            outcome.wrong.append(f"{each.what} took {each.seconds:.1f} s ({each.status} {each.code})")

    async def _watch(self, outcome: FaultOutcome) -> None:
        while True:
            await asyncio.gather(*(self._look(outcome, name) for name in WEBS), asyncio.sleep(1.0))

    async def _look(self, outcome: FaultOutcome, name: str) -> None:
        asked_at = time.monotonic()
        status, _ = await asyncio.to_thread(self.company.readiness, name)
        outcome.readiness[name].append((asked_at, time.monotonic(), status))

    async def _back(self, ended: float) -> float | None:
        """Return the seconds from `ended` until both web processes are ready and a question is answered, or None."""
        client = Client(self.company, self.session)
        while time.monotonic() - ended < LOOKED_FOR:
            if await asyncio.to_thread(self.company.ready):
                place = await conversation(client)
                turn = await ask(client, place, "Are you there?", {"text": "Yes."})
                if (await status_of(client, f"turns/{turn['id']}/", *OVER))["status"] == "done":
                    return round(time.monotonic() - ended, 1)
            await asyncio.sleep(0.5)
        return None


def requests_words(outcome: FaultOutcome) -> str:
    broken = sum(each.status == 0 for each in outcome.requests)
    refused = sum(each.status >= 400 for each in outcome.requests)
    parts = [f"{len(outcome.requests)}, slowest {slowest(outcome.requests):.1f} s"]
    parts += [f"{refused} refused"] if refused else []
    parts += [f"{broken} broken off"] if broken else []
    parts += [f"{len(outcome.late)} over {outcome.fault.answered_within:g} s"] if outcome.late else []
    return ", ".join(parts)
