"""A model server that does what a test's script says, over real HTTP, in OpenAI's and Anthropic's protocols.

A script is `{"steps": [step, ...]}` or one step (`script.Step` lists the fields). It is chosen by the model's name
(`scripted:NAME` or NAME itself, registered with `set_script` or `POST /control/scripts/NAME`) or by a line
`script: {json}` in the newest user message that has one. Without a script the answer is `DEFAULT_TEXT`.
"""

import asyncio
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from .records import Record
from .script import DEFAULT_TEXT, expected_text, parse_script
from .server import Server

__all__ = ["DEFAULT_TEXT", "Record", "ScriptedModel", "expected_text"]


class ScriptedModel:
    """The server on a thread of this process."""

    def __init__(self) -> None:
        self._server = Server()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scripted model", daemon=True)
        self.url = ""

    def start(self) -> Self:
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(10)
        self.url = f"http://127.0.0.1:{port}"
        return self

    def stop(self) -> None:
        """Drops every connection, as a crash would."""
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def drop(self) -> None:
        """Drop every connection, so that hanging requests end. The server goes on."""
        asyncio.run_coroutine_threadsafe(self._server.drop(), self._loop).result(10)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def openai_url(self) -> str:
        return self.url + "/v1"

    def set_script(self, name: str, script: dict[str, Any]) -> str:
        """Registers a script and returns the model name that plays it."""
        self._server.scripts[name] = parse_script(script)
        return f"scripted:{name}"

    def say(self, answers: Mapping[str, Any] | None = None) -> None:
        """Set the server's answers beside the protocols, by route, such as `GET /props`."""
        self._server.other_answers = dict(answers or {})

    def requests(self, contains: str = "") -> list[Record]:
        """Return the requests so far whose body contains the text, oldest first."""
        return self._server.records.find(contains)

    def arrived(self, contains: str = "", count: int = 1) -> list[Record]:
        """Waits until at least `count` matching requests came, running or not. Raises `TimeoutError`."""
        return self._server.records.arrived(contains, count)

    def finished(self, contains: str = "", count: int = 1) -> list[Record]:
        """Waits until at least `count` matching requests came and all of them ended. Raises `TimeoutError`."""
        return self._server.records.finished(contains, count)

    def forget_prompts(self) -> None:
        """As if the time had passed for which prompts are kept in the cache."""
        self._loop.call_soon_threadsafe(self._server.cache.forget)

    def take_broken_rules(self) -> list[str]:
        """Return the sentences about broken rules in prompts (`seed_rules`) since the last call, and forget them."""
        sentences: list[str] = []
        while self._server.broken_rules:
            sentences.append(self._server.broken_rules.popleft())
        return sentences

    def was_asked(self, text: str) -> bool:
        """Return whether a prompt had this text as a message of its newest turn, since the records were forgotten."""
        return hash(text) in self._server.questions

    def forget(self) -> None:
        self._server.records.clear()
        self._server.questions = set()
