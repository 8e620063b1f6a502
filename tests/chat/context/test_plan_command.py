"""`manage.py plan`: lines in, lines out, without database and model."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any

import pytest
from django.core.management import call_command

from tests.product import ROOT

REQUEST = json.dumps({"window": 8_000, "prompts": [300, 200]})


@dataclass(frozen=True)
class Planned:
    """The command's exit status, its answers, and its other output."""

    status: object
    answers: list[Any]
    stderr: str


RunPlan = Callable[[str, bytes], Planned]


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> RunPlan:
    """A function that runs the command in this process on lines of standard input."""

    def run(kind: str, lines: bytes) -> Planned:
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(lines)))
        stdout, stderr = StringIO(), StringIO()
        status: object = 0
        try:
            call_command("plan", kind, stdout=stdout, stderr=stderr)
        except SystemExit as ended:
            status = ended.code
        return Planned(status, [json.loads(line) for line in stdout.getvalue().splitlines()], stderr.getvalue())

    return run


def test_each_line_gets_its_answer_and_a_bad_one_the_exit_status(plan: RunPlan) -> None:
    done = plan("budget", f"{REQUEST}\n\n\n".encode() + b"\xff\xfe\n" + REQUEST.encode())
    assert [answer.get("available", answer.get("error", {}).get("code")) for answer in done.answers] == [
        5_924, "bad_request", 5_924,
    ]  # fmt: skip
    assert (done.status, done.stderr) == (1, "")


def test_good_lines_end_with_status_zero(plan: RunPlan) -> None:
    message = b'{"window": 2000, "messages": [{"id": "U", "role": "user", "text": "\xf0\x9f\xa6\x9c"}]}'
    done = plan("context", message)
    assert done.status == 0 and done.answers[0]["messages"][0]["content"] == "🦜"


def test_an_error_of_a_conversation_is_no_failure_of_the_command(plan: RunPlan) -> None:
    done = plan("context", b'{"window": 2000, "messages": []}\n')
    assert done.status == 0 and done.answers[0]["error"]["code"] == "no_user_message"


def test_a_process_answers_line_by_line_and_needs_no_service() -> None:
    # No service is running at these addresses, and none may be started for planning.
    environment = {**os.environ, "DATABASE_URL": "postgres://localhost:1/none", "REDIS_URL": "redis://localhost:1/0"}
    process = subprocess.Popen(
        [sys.executable, "manage.py", "plan", "budget"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin and process.stdout and process.stderr
    with process:
        for _ in range(2):
            process.stdin.write(REQUEST.encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["offered"] == 2_962
        process.stdin.write(b"\xff\xfe\n")
        process.stdin.close()
        assert json.loads(process.stdout.readline())["error"]["code"] == "bad_request"
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_citations_are_checked_without_a_database(plan: RunPlan) -> None:
    passage = "A persona is the configuration for an assistant. A workspace holds personas."
    sentences = (
        "A persona is the configuration for an assistant.",
        "A workspace is the configuration for an assistant.",
    )
    lines = [json.dumps({"sentence": sentence, "passage": passage}) for sentence in sentences]
    done = plan("citations", "\n".join([*lines, json.dumps({"passage": passage})]).encode())
    assert done.answers[:2] == [{"supported": True}, {"supported": False}]
    assert (done.answers[2]["error"]["code"], done.status) == ("bad_request", 1)
