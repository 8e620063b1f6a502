"""One fault with live work on its way: what became of the work, of requests and of readiness, and how soon all was
back."""

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field

import aiohttp

from contrib.cluster.company import Company
from contrib.cluster.trial.client import Asked, Client, slowest
from contrib.cluster.trial.faults import WEBS, Fault
from contrib.cluster.trial.work import OVER, Result, Upload, Work, ask, conversation, past, status_of

FLOWING = 4.0  # seconds that answers stream before anything happens
BACK_WITHIN = 30.0  # seconds after the end of a fault
LOOKED_FOR = 150.0  # seconds that somebody waits for all to be back
NOTICES = 7.0  # seconds in which a process sees what it lacks, and in which it sees that it is there again


@dataclass
class Outcome:
    """`back`: seconds after the fault's end; None: never. `readiness`: when each web process was asked,
    when it answered, and with what."""

    fault: Fault
    results: dict[str, Result] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    back: float | None = None
    readiness: dict[str, list[tuple[float, float, int]]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)

    @property
    def late(self) -> list[Asked]:
        return [each for each in self.asked if each.seconds > self.fault.answered_within]

    def ready_words(self, begun: float, ended: float) -> str:
        """What `/readyz` said, and whether that is right."""
        said = {
            name: [each for asked, at, each in self.readiness[name] if begun + NOTICES < asked and at < ended]
            for name in WEBS
        }
        for name, statuses in said.items():
            if self.fault.unready is None or not statuses:
                continue
            if (name in self.fault.unready) == (200 in statuses):
                self.wrong.append(f"/readyz of {name} was {sorted(set(statuses))} meanwhile")
        words = {name: "/".join(str(each or "none") for each in sorted(set(said[name]))) or "—" for name in said}
        return (
            words["web-1"] if len(set(words.values())) == 1 else ", ".join(f"{n} {w}" for n, w in sorted(words.items()))
        )


class Trial:
    """Faults of one company."""

    def __init__(self, company: Company, session: aiohttp.ClientSession) -> None:
        self.company, self.session = company, session

    async def begin(self) -> None:
        """Makes what all faults find: a persona whose answers ask for permissions, a conversation with a summary."""
        client = Client(self.company, self.session)
        fields = {"name": "Trial", "instructions": "You are being tried.", "tools": ["open_url"]}
        self.persona = (await client.insistent("POST", "personas/", fields))["id"]
        self.place = await past(client)

    async def suffer(self, fault: Fault) -> "tuple[Outcome, str]":
        """The outcome, and what `/readyz` said in words."""
        fault.before(self.company)
        outcome, client = Outcome(fault), Client(self.company, self.session)
        work = Work(client, self.persona, self.place)
        await work.begin()
        await asyncio.sleep(FLOWING)
        watching = asyncio.create_task(self._watch(outcome))
        begun = time.monotonic()
        try:
            await asyncio.to_thread(fault.begin, self.company)  # some take seconds, in which others ask on
            late = Upload(client, seconds=0.5)
            await late.begin()
            work.parts["uploads"].append(late)
            await asyncio.sleep(fault.seconds)
        finally:
            fault.end(self.company)  # also where it is broken off: what is mounted would stay
        ended = time.monotonic()
        outcome.back = await self._back(ended)
        watching.cancel()
        outcome.results = await work.settled()
        outcome.asked = [each for each in client.asked if each.at + each.seconds > begun and each.at < ended + 5]
        words = outcome.ready_words(begun, ended)
        self._judge(outcome)
        fault.after(self.company)
        return outcome, words

    def _judge(self, outcome: Outcome) -> None:
        outcome.wrong += [said for result in outcome.results.values() for said in result.wrong]
        if outcome.back is None or outcome.back > BACK_WITHIN:
            outcome.wrong.append(f"all was back after {outcome.back} s")
        for each in sorted(outcome.late, key=lambda each: -each.seconds)[:3]:
            outcome.wrong.append(f"{each.what} took {each.seconds:.1f} s ({each.status} {each.code})")

    async def _watch(self, outcome: Outcome) -> None:
        while True:
            await asyncio.gather(*(self._look(outcome, name) for name in WEBS), asyncio.sleep(1.0))

    async def _look(self, outcome: Outcome, name: str) -> None:
        asked = time.monotonic()
        status, _ = await asyncio.to_thread(self.company.readiness, name)
        outcome.readiness[name].append((asked, time.monotonic(), status))

    async def _back(self, ended: float) -> float | None:
        """How long after `ended` both web processes are ready, and a question is answered through the proxy."""
        client = Client(self.company, self.session)
        while time.monotonic() - ended < LOOKED_FOR:
            if await asyncio.to_thread(self.company.ready):
                place = await conversation(client)
                turn = await ask(client, place, "Are you there?", {"text": "Yes."})
                if (await status_of(client, f"turns/{turn['id']}/", *OVER))["status"] == "done":
                    return round(time.monotonic() - ended, 1)
            await asyncio.sleep(0.5)
        return None


def requests_words(outcome: Outcome) -> str:
    broken = sum(each.status == 0 for each in outcome.asked)
    refused = sum(each.status >= 400 for each in outcome.asked)
    said = [f"{len(outcome.asked)}, slowest {slowest(outcome.asked):.1f} s"]
    said += [f"{refused} refused"] if refused else []
    said += [f"{broken} broken off"] if broken else []
    said += [f"{len(outcome.late)} over {outcome.fault.answered_within:g} s"] if outcome.late else []
    return ", ".join(said)
