"""OpenAI's own client on the product, and the questions that it sends."""

import json
from typing import Any

import httpx
from openai import OpenAI

from tests.conftest import Person

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a town.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}, "at": {"type": "string"}}},
    },
}


def client_of(person: Person, **options: Any) -> OpenAI:
    defaults = {"api_key": person.token, "max_retries": 0, "http_client": person.caller.server.http()}
    return OpenAI(base_url=f"{person.caller.url}/v1", **{**defaults, **options})


def posted(person: Person, path: str, body: Any, **headers: str) -> httpx.Response:
    """Below `/v1/`, without OpenAI's client."""
    with person.caller.server.http("/v1/", headers={"Authorization": f"Bearer {person.token}", **headers}) as http:
        return http.post(path, json=body)


def user_messages(text: str, *steps: dict[str, Any]) -> list[Any]:
    script = f"\nscript: {json.dumps({'steps': steps})}" if steps else ""
    return [{"role": "user", "content": text + script}]


def turn_of(report: str) -> str:
    return report.removesuffix("/report/").rpartition("/")[2]
