"""OpenAI's protocol through OpenAI's client for Node, which `make setup` installs if npm exists."""

import json
import os
import shutil
import subprocess

import pytest

from llm.models import Model
from tests.chat.openai_clients import WEATHER, user_messages
from tests.conftest import Person
from tests.product import ROOT, WAIT

pytestmark = [
    pytest.mark.product,
    pytest.mark.skipif(
        shutil.which("node") is None or not (ROOT / "tests/node/node_modules/openai").is_dir(),
        reason="OpenAI's client for Node is not installed: install node and npm, then run make setup",
    ),
]


def test_the_client_for_node_works_unchanged(person: Person, able: Model) -> None:
    call = {"tool_calls": [{"name": "get_weather", "arguments": {"town": "Conwy"}}]}
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": f"{person.caller.url}/v1",
        "OPENAI_API_KEY": person.token,
        "MODEL": able.name,
        "MESSAGES": json.dumps(user_messages("Hi", {"text": "Hello from here.", "usage": {"input": 3, "output": 4}})),
        "CALLING": json.dumps(user_messages("Weather?", call, {"text": "It rains."})),
        "TOOLS": json.dumps([WEATHER]),
    }
    program = ["node", "completions.mjs"]
    ran = subprocess.run(
        program, cwd=ROOT / "tests/node", env=environment, capture_output=True, text=True, timeout=WAIT
    )
    assert ran.returncode == 0, ran.stderr
    output = json.loads(ran.stdout)
    assert output["whole"] == output["streamed"] == "Hello from here."
    assert output["usage"]["total_tokens"] == 7
    assert output["afterTools"] == "It rains."
    assert output["refused"] == ["NotFoundError", 404, "model_not_found", True]
    assert able.name in output["models"] and output["dimensions"] == [256, 256]
