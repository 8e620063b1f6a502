"""The work that is under way during a fault: answers with readers, uploads, summaries, runs, approvals, questions.

Each kind of work has two methods: `begin` starts it, and `settled` waits for its end and counts its outcome in a
`TrialResult`. To add a kind: write a class with both methods, and add it to `LiveWork.begin`.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import aiohttp

from contrib.cluster.process import ClusterError
from contrib.cluster.trial.client import Client
from tests.scripted_model import expected_text

ANSWERS = 20
SHORT, LONG = {"tokens": 120, "interval": 0.1, "ttft": 0.2}, {"tokens": 250, "interval": 0.1, "ttft": 0.2}
UPLOADS, RUNS, APPROVALS = 2, 2, 2
UPLOAD_BYTES, UPLOAD_PIECES, UPLOAD_SECONDS = 400_000, 40, 8.0
EXCHANGES, SUMMARY_SECONDS = 12, 8.0  # turns of the summarised conversation, and seconds that its summary takes
PAST = " ".join(f"word{number}" for number in range(200))
READ = ("ready", "too_long")  # too long for any window
OVER = ("done", "failed", "stopped", "interrupted")
SETTLED_WITHIN = 150.0  # seconds


@dataclass
class TrialResult:
    """Counts the outcomes of one kind of work. `wrong` has a sentence for each failure."""

    became: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in sorted(self.became.items())) or "—"


def scripted(text: str, script: dict[str, Any]) -> str:
    return f"{text}\nscript: {json.dumps(script)}"


async def conversation(client: Client, **more: Any) -> str:
    """Create a conversation and return its id. It has a title, else the model would be asked for one."""
    return str((await client.insistent("POST", "conversations/", {"title": "Trial", **more}))["id"])


async def ask(client: Client, place: str, text: str, script: dict[str, Any]) -> Any:
    answer = await client.insistent("POST", f"conversations/{place}/turns/", {"text": scripted(text, script)})
    return answer["turns"][0]


async def settles(look: Callable[[], Awaitable[Any]], seconds: float = SETTLED_WITHIN) -> Any:
    """Call `look` every second until it returns a true value, or until `seconds` have passed. Return its last value."""
    until = time.monotonic() + seconds
    while True:
        state = await look()
        if state or time.monotonic() > until:
            return state
        await asyncio.sleep(1.0)


async def status_of(client: Client, path: str, *over: str) -> Any:
    """Return the row at the path once its status is in `over`, or when the time is up."""
    row: Any = None

    async def look() -> Any:
        nonlocal row
        row = await client.call("GET", path) or row
        return row if row and row["status"] in over else None

    await settles(look)
    return row or {"status": "unknown"}


def text_of(events: Iterable[dict[str, Any]]) -> str:
    """Return the text of an answer from its events. A SNAPSHOT replaces the events before it."""
    text = ""
    for event in events:
        if event["type"] == "SNAPSHOT":
            text = "".join(part["text"] for part in event["parts"] if part["type"] == "text")
        elif event["type"] == "TEXT_MESSAGE_CONTENT":
            text += event["delta"]
    return text


class StreamedAnswer:
    """An answer with a reader of its events."""

    def __init__(self, client: Client, script: dict[str, Any]) -> None:
        self.client, self.script, self.text = client, script, expected_text(script)
        self.events: list[dict[str, Any]] = []

    async def begin(self) -> None:
        self.place = await conversation(self.client)
        self.turn = (await ask(self.client, self.place, uuid4().hex, self.script))["id"]
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self.client.events(self.turn):
            self.events.append(event)

    async def settled(self, result: TrialResult) -> None:
        try:
            await asyncio.wait_for(self.reading, SETTLED_WITHIN)
        except TimeoutError:
            result.wrong.append(f"the reader of {self.turn} was told of no end")
        row = await status_of(self.client, f"turns/{self.turn}/", *OVER)
        self._look_at_events(row, result)
        if row["status"] == "done" and row["text"] == self.text:
            result.became["whole"] += 1
        elif row["status"] == "interrupted" and self.text.startswith(row["text"]):
            result.became["gone on by itself" if await self._gone_on() else "interrupted"] += 1
        else:
            code = (row.get("error") or {}).get("code", "")
            result.became["lost"] += 1
            result.wrong.append(f"{self.turn} is {row['status']} {code} with {len(row.get('text', ''))} characters")

    def _look_at_events(self, row: Any, result: TrialResult) -> None:
        numbers = [event["seq"] for event in self.events if event.get("seq")]
        if numbers != sorted(set(numbers)):
            result.wrong.append(f"the events of {self.turn} came as {numbers}")
        text = text_of(self.events)
        if row.get("status") == "done" and text != row["text"]:
            result.wrong.append(f"the reader of {self.turn} got {len(text)} of {len(row['text'])} characters")

    async def _gone_on(self) -> bool:
        """Return whether a new answer has continued the interrupted one and is complete."""

        async def look() -> Any:
            page = await self.client.call("GET", f"conversations/{self.place}/messages/")
            last = page["results"][0] if page and page["results"] else None
            return last and last["role"] == "assistant" and last["status"] == "done"

        return bool(await settles(look, 90.0))


class SlowUpload:
    """An upload that takes `seconds` to send."""

    def __init__(self, client: Client, seconds: float = UPLOAD_SECONDS) -> None:
        self.client, self.seconds = client, seconds
        word = uuid4().hex
        self.bytes, self.sent = f"{word} ".encode() * (UPLOAD_BYTES // 33), list[float]()

    async def begin(self) -> None:
        self.sending = asyncio.create_task(self._send())

    async def _send(self) -> Any:
        form = aiohttp.FormData()
        form.add_field("file", self._pieces(), filename="trial.txt", content_type="text/plain")
        return await self.client.call("POST", "files/", data=form, what="upload", sent=self.sent)

    async def _pieces(self) -> AsyncIterator[bytes]:
        size = -(-len(self.bytes) // UPLOAD_PIECES)
        for at in range(0, len(self.bytes), size):
            yield self.bytes[at : at + size]
            await asyncio.sleep(self.seconds / UPLOAD_PIECES)
            self.sent.append(time.monotonic())

    async def settled(self, result: TrialResult) -> None:
        file = await self.sending
        if file is None:
            result.became["refused"] += 1
            return
        row = await status_of(self.client, f"files/{file['id']}/", *READ, "failed")
        result.became["read" if row["status"] in READ else row["status"]] += 1
        if row["status"] not in READ or row["size"] != len(self.bytes):
            result.wrong.append(f"the file {file['id']} is {row['status']}: {row.get('error')}")


async def conversation_with_summary(client: Client) -> str:
    """Create a conversation with a summary, which is rewritten during the faults. Return its id. This takes a while."""
    place = await conversation(client)
    script = {"text": PAST, "summary": {"text": "## Earlier\nWords.\n\n## Now\nMore words.", "ttft": SUMMARY_SECONDS}}
    for number in range(EXCHANGES):
        turn = await ask(client, place, f"{PAST} {number}", script if number == 0 else {"text": PAST})
        await status_of(client, f"turns/{turn['id']}/", *OVER)
    await client.insistent("POST", f"conversations/{place}/summarise/")
    if not await settles(lambda: client.call("GET", f"conversations/{place}/summary/")):
        raise ClusterError("No summary was written, before anything was broken.")
    return place


class SummaryRebuild:
    def __init__(self, client: Client, place: str) -> None:
        self.client, self.place = client, place

    async def begin(self) -> None:
        self.old = (await self.client.insistent("GET", f"conversations/{self.place}/summary/"))["id"]
        await self.client.insistent("POST", f"summaries/{self.old}/rebuild/")

    async def settled(self, result: TrialResult) -> None:
        """Wait for the summary, then send a message: a failed summary must not block the conversation."""
        written = await settles(self._written, 60.0)
        result.became["written" if written else "not written"] += 1
        turn = await ask(self.client, self.place, "and now", {"text": "So be it."})
        row = await status_of(self.client, f"turns/{turn['id']}/", *OVER)
        if row["status"] != "done":
            result.wrong.append(f"after the summary an answer is {row['status']}")

    async def _written(self) -> bool:
        summary = await self.client.call("GET", f"conversations/{self.place}/summary/")
        return bool(summary and summary["id"] != self.old)


class ChecklistRun:
    """A run through a checklist of three items. The first takes a while."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def begin(self) -> None:
        mark = {"tool_calls": [{"name": "mark_item"}]}
        slow = {"steps": [{"tokens": 100, "interval": 0.1, **mark}, {"text": "ok"}]}
        quick = {"steps": [mark, {"text": "ok"}]}
        words = [f"script: {json.dumps(each, separators=(',', ':'))}" for each in (slow, quick, quick)]
        fields = {"title": f"Trial {uuid4().hex}", "level": "task", "archetype": "model", "notes": "", "draft": False}
        task = await self.client.insistent("POST", "tasks/", fields)
        items = {"items": [{"title": each} for each in words]}
        await self.client.insistent("POST", f"tasks/{task['id']}/draft/", items)
        self.run = (await self.client.insistent("POST", f"tasks/{task['id']}/runs/", {"start": True}))["id"]

    async def settled(self, result: TrialResult) -> None:
        row = await status_of(self.client, f"runs/{self.run}/", "done", "failed", "stopped", "waiting")
        tried = max((step["attempt"] for step in row.get("steps", ())), default=1)
        result.became["done" if row["status"] == "done" and tried == 1 else f"{row['status']} with another try"] += 1
        if row["status"] != "done":
            result.wrong.append(f"the run {self.run} is {row['status']}: {row.get('code')} {row.get('detail')}")


class ToolApproval:
    """An answer that asks for permission to open an address. Permission is refused once the fault is over."""

    def __init__(self, client: Client, persona: str) -> None:
        self.client, self.persona = client, persona

    async def begin(self) -> None:
        place = await conversation(self.client, persona=self.persona)
        call = {"name": "open_url", "arguments": {"url": "https://example.org/"}}
        script = {"steps": [{"tool_calls": [call]}, {"text": "So be it."}]}
        self.turn = (await ask(self.client, place, uuid4().hex, script))["id"]

    async def settled(self, result: TrialResult) -> None:
        row = await status_of(self.client, f"turns/{self.turn}/", "running", *OVER)
        call = next((part["id"] for part in row.get("parts", ()) if part.get("approval") == "waiting"), None)
        if call is not None and row["status"] == "running":
            await self.client.call("POST", f"turns/{self.turn}/approvals/", {"call": call, "allow": False})
            row = await status_of(self.client, f"turns/{self.turn}/", *OVER)
        whole = row["status"] == "done" and row["text"] == "So be it."
        result.became["decided" if whole else row["status"]] += 1
        # A tool may have acted, so an interrupted answer is not retried: it waits for the user.
        if not whole and row["status"] != "interrupted":
            result.wrong.append(f"the approval's turn {self.turn} is {row['status']}")


class QuestionStream:
    """A short question every 2 s and a `GET me/` every 0.5 s, which simulate other users."""

    def __init__(self, client: Client) -> None:
        self.client, self.turns = client, list[str]()

    async def begin(self) -> None:
        self._places = asyncio.Queue[str]()
        for _ in range(6):
            self._places.put_nowait(await conversation(self.client))
        self._tasks = [asyncio.create_task(self._look()), asyncio.create_task(self._ask())]
        self._sent: set[asyncio.Task[None]] = set()

    async def _look(self) -> None:
        while True:
            self._beside(self.client.call("GET", "me/", what="me"))
            await asyncio.sleep(0.5)

    async def _ask(self) -> None:
        while True:
            self._beside(self._send(await self._places.get()))
            await asyncio.sleep(2.0)

    def _beside(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._sent.add(task)
        task.add_done_callback(self._sent.discard)

    async def _send(self, place: str) -> None:
        text = scripted(uuid4().hex, {"text": "Yes."})
        answer = await self.client.call("POST", f"conversations/{place}/turns/", {"text": text}, what="send")
        self.turns += [answer["turns"][0]["id"]] if answer else []
        await asyncio.sleep(5.0)
        self._places.put_nowait(place)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._sent, return_exceptions=True)

    async def settled(self, result: TrialResult) -> None:
        for turn in self.turns:
            row = await status_of(self.client, f"turns/{turn}/", *OVER)
            result.became["answered" if row["status"] == "done" else row["status"]] += 1
            if row["status"] not in ("done", "interrupted"):
                result.wrong.append(f"the question {turn} is {row['status']}")


@dataclass
class LiveWork:
    """All work that is under way during a fault.

    `persona`: the id of a persona whose answers ask for permissions.
    `place`: the id that `conversation_with_summary` has returned.
    """

    client: Client
    persona: str
    place: str
    parts: dict[str, list[Any]] = field(default_factory=dict)

    async def begin(self) -> None:
        """Begin all work. Answers and uploads come last, so that they are still under way when the fault begins."""
        client = self.client
        self.asking = QuestionStream(client)
        slow: dict[str, list[Any]] = {
            "summaries": [SummaryRebuild(client, self.place)],
            "runs": [ChecklistRun(client) for _ in range(RUNS)],
            "approvals": [ToolApproval(client, self.persona) for _ in range(APPROVALS)],
        }
        await _all(each.begin() for several in slow.values() for each in several)
        quick: dict[str, list[Any]] = {
            "answers": [StreamedAnswer(client, (SHORT, LONG)[number % 2]) for number in range(ANSWERS)],
            "uploads": [SlowUpload(client) for _ in range(UPLOADS)],
        }
        await _all(each.begin() for several in quick.values() for each in several)
        await self.asking.begin()
        self.parts = {**quick, **slow, "questions": [self.asking]}

    async def settled(self) -> dict[str, TrialResult]:
        await self.asking.end()
        results = {kind: TrialResult() for kind in self.parts}
        await _all(each.settled(results[kind]) for kind, several in self.parts.items() for each in several)
        return results


async def _all(works: Iterable[Any]) -> None:
    await asyncio.gather(*works)
