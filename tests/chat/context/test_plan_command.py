"""`manage.py plan` as a process: lines in, lines out, without database and model."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
REQUEST = json.dumps({"window": 8_000, "prompts": [300, 200]})


def run_plan(kind: str, lines: bytes) -> subprocess.CompletedProcess[bytes]:
    # No service is running at these addresses, and none may be started for planning.
    environment = {**os.environ, "DATABASE_URL": "postgres://localhost:1/none", "REDIS_URL": "redis://localhost:1/0"}
    return subprocess.run(
        [sys.executable, "manage.py", "plan", kind], cwd=ROOT, env=environment, input=lines, capture_output=True
    )


def test_each_line_gets_its_answer_and_a_bad_one_the_exit_status() -> None:
    done = run_plan("budget", f"{REQUEST}\n\n\n".encode() + b"\xff\xfe\n" + REQUEST.encode())
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer.get("available", answer.get("error", {}).get("code")) for answer in answers] == [
        5_924, "bad_request", 5_924,
    ]  # fmt: skip
    assert done.returncode == 1 and done.stderr == b""


def test_good_lines_end_with_status_zero() -> None:
    done = run_plan(
        "context", b'{"window": 2000, "messages": [{"id": "U", "role": "user", "text": "\xf0\x9f\xa6\x9c"}]}'
    )
    assert done.returncode == 0 and json.loads(done.stdout)["messages"][0]["content"] == "🦜"


def test_an_error_of_a_conversation_is_no_failure_of_the_command() -> None:
    done = run_plan("context", b'{"window": 2000, "messages": []}\n')
    assert done.returncode == 0 and json.loads(done.stdout)["error"]["code"] == "no_user_message"


def test_answers_come_line_by_line() -> None:
    process = subprocess.Popen(
        [sys.executable, "manage.py", "plan", "budget"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin and process.stdout
    with process:
        for _ in range(3):
            process.stdin.write(REQUEST.encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["offered"] == 2_962
        process.stdin.close()
    assert process.returncode == 0
