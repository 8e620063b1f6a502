"""The examples for programs on the page run as they are, with a real token."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.test import Client

from accounts.services import create_token
from config.api_docs.examples import EXAMPLES
from tests.conftest import Person
from tests.product import ROOT, WAIT, Product, die_with_parent, free_port, until

pytestmark = pytest.mark.product

CODE = re.compile(r"<pre[^>]*><code>(.*?)</code></pre>", re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PLACEHOLDER = "gh_your-token"


@pytest.fixture
def shown(product: Product, person: Person) -> dict[str, str]:
    """Return the programs of the page by name."""
    client = Client()
    client.force_login(person.user)
    cookies = {settings.SESSION_COOKIE_NAME: client.cookies[settings.SESSION_COOKIE_NAME].value}
    page = httpx.get(f"{product.url}/api/examples/", cookies=cookies).text
    blocks = [html.unescape(re.sub(r"<[^>]+>", "", block)) for block in CODE.findall(page)]
    assert len(blocks) == len(EXAMPLES)
    return {example.name: block for example, block in zip(EXAMPLES, blocks, strict=True)}


def run(program: str, *command: str, directory: Path) -> str:
    assert "127.0.0.1:8000" not in program
    ran = subprocess.run(
        [*command], input=program, cwd=directory, capture_output=True, text=True, timeout=WAIT, env=os.environ
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def of_person(program: str, person: Person) -> str:
    assert PLACEHOLDER in program
    return program.replace(PLACEHOLDER, person.token)


def test_the_shell_gets_events_and_an_answer(shown: dict[str, str], person: Person, tmp_path: Path) -> None:
    output = run(of_person(shown["curl"], person), "bash", "-eu", directory=tmp_path)
    assert "event: RUN_FINISHED" in output
    answer = json.loads(output.strip().splitlines()[-1])
    assert (answer["status"], bool(answer["text"])) == ("done", True)


def test_openais_client_for_python_works_as_shown(shown: dict[str, str], person: Person, tmp_path: Path) -> None:
    assert run(of_person(shown["python"], person), sys.executable, "-", directory=tmp_path).strip()


@pytest.mark.parametrize("block", PYTHON.findall((ROOT / "docs/api/openai.md").read_text()))
def test_the_programs_of_the_guide_work_as_shown(block: str, product: Product, person: Person, tmp_path: Path) -> None:
    program = of_person(block, person).replace("http://127.0.0.1:8000", product.url)
    assert run(program, sys.executable, "-", directory=tmp_path).strip()


@pytest.mark.skipif(
    shutil.which("node") is None or not (ROOT / "tests/node/node_modules/openai").is_dir(),
    reason="OpenAI's client for Node is not installed: install node and npm, then run make setup",
)
def test_openais_client_for_javascript_works_as_shown(shown: dict[str, str], person: Person) -> None:
    program = of_person(shown["javascript"], person)
    assert run(program, "node", "--input-type=module", directory=ROOT / "tests/node").strip()


def test_the_websocket_client_works_as_shown(shown: dict[str, str], person: Person, tmp_path: Path) -> None:
    assert run(of_person(shown["websocket"], person), sys.executable, "-", directory=tmp_path).strip()


def test_the_receiver_of_webhooks_takes_what_is_ours_and_nothing_else(
    shown: dict[str, str], person: Person, tmp_path: Path
) -> None:
    port, log = free_port(), tmp_path / "log"
    webhook = _made(person, f"http://127.0.0.1:{port}/")
    program = shown["webhook"].replace("PORT = 8080", f"PORT = {port}")
    program = re.sub(r'SECRET = ".*"', f'SECRET = "{webhook["secret"]}"', program)
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=out, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent
        )
    try:
        url = f"http://127.0.0.1:{port}/"
        forged = {"webhook-id": "1", "webhook-timestamp": "1", "webhook-signature": "v1,x"}
        until(lambda: _answer(url, forged) == 401, "the receiver is there and refuses a forged call")
        turn = person.caller.ask("Hello.")
        until(lambda: turn["id"] in log.read_text(), "the receiver hears that the answer has ended")
    finally:
        process.kill()
        process.wait()


def _made(person: Person, url: str) -> Any:
    _, token = create_token(user=person.user, name="hooks", scopes=["admin"])
    answer = httpx.post(
        person.caller.url + "/api/v1/webhooks/",
        json={"url": url, "events": ["turn.finished"]},
        headers={"Authorization": f"Bearer {token}"},
    )
    assert answer.status_code == 201
    return answer.json()


def _answer(url: str, headers: dict[str, str]) -> int | None:
    try:
        return httpx.post(url, json={}, headers=headers).status_code
    except httpx.TransportError:
        return None
