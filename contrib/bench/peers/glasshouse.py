"""Glasshouse as `make run` starts it, with its bundled model and without limits per person."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from contrib.bench.peers.client import AnswerExchange, http
from contrib.bench.peers.products import Ask, Product
from scripts.services import UNLIMITED, UNLIMITED_PAGES
from tests.product import ROOT

JOB_TIMEOUT = 120.0  # seconds that an import, or a summary, may take
LAST = rb"RUN_FINISHED|SNAPSHOT"  # a client that is too slow for the events gets the whole answer in a SNAPSHOT
FAILED = rb"^HTTP/1\.1 [45]|RUN_(STOPPED|ERROR)"
WINDOWS = {"scripted": 1_000_000, "narrow": 8_000}  # tokens


class Glasshouse(Product):
    name = "Glasshouse"
    cwd = ROOT
    health = "/readyz"

    def __init__(self, directory: Path, model_url: str) -> None:
        super().__init__(directory, model_url)
        self.paths = {"Glasshouse REST": self._rest, "Glasshouse /v1/": self._openai}
        self.lengths = {
            "Glasshouse, all sent": lambda count: self._long(count, "scripted"),
            "Glasshouse, window of 8,000": lambda count: self._long(count, "narrow"),
        }
        self._token = ""
        self._models: dict[str, str] = {}

    def command(self) -> list[str]:
        return [sys.executable, "manage.py", "up"]

    def environment(self) -> dict[str, str]:
        limits = {"API_RATES": UNLIMITED, "PAGE_RATES": UNLIMITED_PAGES, "LIVE_TURNS": "0", "CONNECTIONS_AT_ONCE": "0"}
        place = {"DATA_DIR": str(self.directory), "PORT": str(self.port)}
        return {**limits, **place, "ADMIN_PASSWORD": "only-for-the-bench"}

    def prepare(self) -> None:
        if not self._token:
            models = [f"--model={name}:{window}" for name, window in WINDOWS.items()]
            self._manage("provider", "Bench", "--base-url", self.model_url, *models, "--default")
            self._token = self._manage("token", "admin").strip()
            rows = self._get("models/")
            self._models = {row["name"]: row["id"] for row in rows.get("results", rows)}

    def _manage(self, *arguments: str) -> str:
        environment = {**os.environ, **self.environment(), "PROVIDER_API_KEY": "a key"}
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    def _get(self, path: str) -> Any:
        return self.http.get(f"/api/v1/{path}", headers=self._headers()).raise_for_status().json()

    def _post(self, path: str, **content: Any) -> Any:
        return self.http.post(f"/api/v1/{path}", headers=self._headers(), **content).raise_for_status().json()

    def _rest(self, text: str) -> AnswerExchange:
        # With a title. Otherwise the model would be called for a title during the next request.
        return self._turn(str(self._post("conversations/", json={"title": "Bench"})["id"]), {"text": text})

    def _turn(self, conversation: str, body: dict[str, Any]) -> AnswerExchange:
        path = f"/api/v1/conversations/{conversation}/turns/"
        headers = {**self._headers(), "Accept": "text/event-stream"}
        return AnswerExchange(self.port, http("POST", path, headers, json.dumps(body).encode()), LAST, FAILED)

    def _openai(self, text: str) -> AnswerExchange:
        body = {"model": "scripted", "stream": True, "messages": [{"role": "user", "content": text}]}
        request = http("POST", "/v1/chat/completions", self._headers(), json.dumps(body).encode())
        return AnswerExchange(self.port, request, rb"\[DONE\]", FAILED)

    def _long(self, count: int, model: str) -> Ask:
        title = f"{count} messages for {model}"
        export = [{"uuid": title, "name": title, "chat_messages": [_message(number) for number in range(count)]}]
        job = self._post("imports/", files={"file": ("conversations.json", json.dumps(export).encode())})
        deadline = time.monotonic() + JOB_TIMEOUT
        while (state := self._get(f"imports/{job['id']}/"))["status"] != "done":
            if state["status"] == "failed" or time.monotonic() > deadline:
                raise RuntimeError(f"The import of {count} messages did not end well: {state}")
            time.sleep(0.1)
        [conversation] = [row for row in self._get("conversations/")["results"] if row["title"] == title]
        return lambda text: self._turn(self._idle(conversation["id"]), {"text": text, "models": [self._models[model]]})

    def _idle(self, conversation: str) -> str:
        """Wait until the conversation is not being summarised, since a message would be refused. Return its id."""
        deadline = time.monotonic() + JOB_TIMEOUT
        while self._get(f"conversations/{conversation}/")["state"] != "idle":
            if time.monotonic() > deadline:
                raise RuntimeError(f"A conversation was busy for more than {JOB_TIMEOUT:g} s.")
            time.sleep(0.1)
        return conversation


def _message(number: int) -> dict[str, Any]:
    sender = "assistant" if number % 2 else "human"
    return {"uuid": str(number), "sender": sender, "text": f"Said as number {number} of many."}
