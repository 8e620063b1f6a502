"""Moves and imports whose process is killed at any moment, by the real commands on the database.

With more, and with figures in a file:
MOVED=2000 KILLS=20 .venv/bin/python -m pytest -n 0 --junit-xml figures.xml tests/chat/test_interrupted_moves.py
"""

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import connection
from pytest_django.fixtures import Settings

from accounts.models import User
from chat.models import Conversation, Import, ImportedRow, Message
from config.embedded.paths import UPLOADS
from tests.chat.foreign_workspaces import GENERATED, differences, open_webui_places, write_open_webui
from tests.product import ROOT, database_url, die_with_parent, until

pytestmark = [pytest.mark.process, pytest.mark.slow]
MOVED = int(os.environ.get("MOVED", "60"))  # conversations
KILLS = int(os.environ.get("KILLS", "5"))
MAX_MEMORY = 300  # MB of a process
MAX_WAIT = 600.0  # seconds
Record = Callable[[str, object], None]


@pytest.fixture
def people(committed: None) -> list[User]:
    suffix = uuid4().hex[:8]
    return [User.objects.create_user(f"{name}-{suffix}", email=f"{name}-{suffix}@example.com") for name in ("o", "i")]


class Command:
    """A command of the product in a process of its own. `peak`: the most memory that one of them had, in MB."""

    def __init__(self, people: list[User], environment: dict[str, str], *arguments: str) -> None:
        self._people = people
        self._environment = {**os.environ, "DATABASE_URL": database_url(connection.settings_dict), **environment}
        self._arguments = arguments
        self.peak = 0

    def run(self, kill_at: int | None = None) -> bool:
        """Run it, and kill it once so many conversations are stored. Return whether it has ended by itself."""
        command = [sys.executable, "manage.py", *self._arguments]
        process = subprocess.Popen(
            command, cwd=ROOT, env=self._environment, stdout=subprocess.DEVNULL, preexec_fn=die_with_parent
        )
        until(lambda: self._is_due(process.pid, kill_at), "rows are stored, or the command has ended", MAX_WAIT)
        process.kill()
        assert process.wait() in (0, -signal.SIGKILL), process.returncode
        return process.returncode == 0

    def _is_due(self, pid: int, kill_at: int | None) -> bool:
        """Return whether the process has ended, or shall be killed. Notes its memory."""
        self.peak = max(self.peak, _peak_memory(pid))
        return _has_ended(pid) or (kill_at is not None and self._stored() >= kill_at)

    def _stored(self) -> int:
        return Conversation.objects.filter(owner__in=self._people).count()


def _peak_memory(pid: int) -> int:
    """Return the most memory that a process has had, in MB; 0 if it has ended.

    The operating system's count of an ended process begins with that of its parent, which has much more.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    peak = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(peak[1]) // 1024 if peak else 0


def _has_ended(pid: int) -> bool:
    """Return whether the process has ended. It stays to be waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def moments() -> list[int]:
    """Return the numbers of conversations at which the process is killed, in order."""
    chance = random.Random(os.environ.get("SEED", "47"))
    return sorted(chance.randrange(MOVED) for _ in range(KILLS))


def counts(people: list[User]) -> list[int]:
    return [
        Conversation.objects.filter(owner__in=people).count(),
        Message.objects.filter(owner__in=people).count(),
        ImportedRow.objects.filter(job__owner__in=people).count(),
        Import.objects.filter(owner__in=people).count(),
    ]


@pytest.mark.parametrize("product", ["openwebui", "librechat"])
def test_a_move_that_is_killed_at_any_moment_completes(
    people: list[User], tmp_path: Path, product: str, record_property: Record
) -> None:
    path, temporary = tmp_path / "workspace", tmp_path / "temporary"
    temporary.mkdir()
    write, places = GENERATED[product]
    write(path, [person.email for person in people], MOVED)
    environment = {"DATA_DIR": str(tmp_path), "TMPDIR": str(temporary)}
    command = Command(people, environment, f"import_{product}", str(path))
    kills = sum(not command.run(moment) for moment in moments())
    assert command.run()
    assert differences(places(path)) == []
    before = counts(people)
    assert (before[0], *before[2:]) == (MOVED, MOVED, len(people)), "an entry for each, and an import for each person"
    assert command.run() and counts(people) == before, "a second move changes nothing"
    assert list(temporary.iterdir()) == []
    assert kills >= KILLS - 1 and command.peak <= MAX_MEMORY
    record_property(product, f"{before[:2]}, {kills} kills, {command.peak} MB")


def test_an_import_of_an_export_whose_worker_is_killed_at_any_moment_completes(
    people: list[User], tmp_path: Path, settings: Settings, record_property: Record
) -> None:
    path = tmp_path / "webui.db"
    owner = people[0]
    write_open_webui(path, [owner.email], MOVED)
    settings.MEDIA_ROOT = tmp_path / UPLOADS
    blob = default_storage.save(f"imports/{uuid4()}", ContentFile(exported(path)))
    job = Import.objects.create(owner=owner, name="export.json", blob=blob)
    work = f"from chat.conversations.importing import jobs; jobs.run('{job.pk}')"
    command = Command(people, {"DATA_DIR": str(tmp_path)}, "shell", "-c", work)
    kills = 0
    for moment in moments():
        kills += not command.run(moment)
        # A sweep hands it out again once its heartbeat is old.
        Import.objects.filter(pk=job.pk, status="running").update(heartbeat=datetime(2020, 1, 1, tzinfo=UTC))
    assert command.run()
    job.refresh_from_db()
    assert (job.status, job.imported, job.known, job.skipped) == ("done", MOVED, 0, 0)
    assert differences(open_webui_places(path)) == []
    assert kills >= KILLS - 1 and command.peak <= MAX_MEMORY
    record_property("export", f"{counts(people)[:2]}, {kills} kills, {command.peak} MB")


def exported(path: Path) -> bytes:
    """Return the chats of a database as Open WebUI exports them."""
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT id, title, chat, created_at, updated_at, archived, pinned FROM chat").fetchall()
    names = ("id", "title", "chat", "created_at", "updated_at", "archived", "pinned")
    chats = [dict(zip(names, row, strict=True)) for row in rows]
    return json.dumps([{**chat, "chat": json.loads(chat["chat"])} for chat in chats]).encode()
