"""The protocols through the clients for Node of OpenAI and Anthropic, which `make setup` installs if npm exists."""

import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from llm.models import Model
from tests.chat.openai_clients import WEATHER, user_messages
from tests.conftest import Person
from tests.product import ROOT, WAIT

CLIENTS = ("openai", "@anthropic-ai/sdk")
pytestmark = [
    pytest.mark.product,
    pytest.mark.skipif(
        shutil.which("node") is None or not all((ROOT / "tests/node/node_modules" / name).is_dir() for name in CLIENTS),
        reason="The clients for Node are not installed: install node and npm, then run make setup",
    ),
]
CALL = {"tool_calls": [{"name": "get_weather", "arguments": {"town": "Conwy"}}]}
HELLO = {"text": "Hello from here.", "reasoning": "Greet.", "usage": {"input": 3, "output": 4}}


def run(program: str, **environment: str) -> Any:
    """Run a program of `tests/node` and return the object that it prints."""
    command = ["node", program]
    ran = subprocess.run(
        command,
        cwd=ROOT / "tests/node",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def content(text: str, *steps: dict[str, Any]) -> str:
    written: str = user_messages(text, *steps)[0]["content"]
    return written


def test_the_client_for_node_works_unchanged(person: Person, able: Model) -> None:
    output = run(
        "completions.mjs",
        OPENAI_BASE_URL=f"{person.caller.url}/v1",
        OPENAI_API_KEY=person.token,
        MODEL=able.name,
        MESSAGES=json.dumps(user_messages("Hi", {"text": "Hello from here.", "usage": {"input": 3, "output": 4}})),
        CALLING=json.dumps(user_messages("Weather?", CALL, {"text": "It rains."})),
        TOOLS=json.dumps([WEATHER]),
    )
    assert output["whole"] == output["streamed"] == "Hello from here."
    assert output["usage"]["total_tokens"] == 7
    assert output["afterTools"] == "It rains."
    assert output["refused"] == ["NotFoundError", 404, "model_not_found", True]
    assert able.name in output["models"] and output["dimensions"] == [256, 256]


def test_its_responses_work_unchanged(person: Person, able: Model) -> None:
    output = run(
        "responses.mjs",
        OPENAI_BASE_URL=f"{person.caller.url}/v1",
        OPENAI_API_KEY=person.token,
        MODEL=able.name,
        QUESTION=content("Hi", HELLO),
        CALLING=content("Weather?", CALL, {"text": "It rains."}),
        TOOLS=json.dumps([{"type": "function", "strict": False, **WEATHER["function"]}]),
    )
    assert output["whole"] == output["streamed"] == output["final"] == "Hello from here."
    assert output["usage"]["total_tokens"] == 7
    assert (output["first"], output["last"]) == ("response.created", "response.completed")
    assert output["afterTools"] == "It rains."
    assert output["refused"] == ["BadRequestError", 400, "unsupported_parameter", "previous_response_id"]


def test_the_client_of_anthropic_works_unchanged(person: Person, able: Model) -> None:
    function = WEATHER["function"]
    output = run(
        "messages.mjs",
        ANTHROPIC_BASE_URL=person.caller.url,
        ANTHROPIC_API_KEY=person.token,
        MODEL=able.name,
        QUESTION=content("Hi", HELLO),
        CALLING=content("Weather?", CALL, {"text": "It rains."}),
        TOOLS=json.dumps([{"name": function["name"], "input_schema": function["parameters"]}]),
    )
    assert output["whole"] == output["streamed"] == "Hello from here."
    assert output["blocks"] == ["thinking", "text"]
    assert (output["usage"]["input_tokens"], output["usage"]["output_tokens"]) == (3, 4)
    assert (output["stopped"], output["afterTools"]) == ("tool_use", "It rains.")
    assert output["counted"] > 10
    assert output["refused"] == ["NotFoundError", 404, "not_found_error", True]
