"""Handing work to workers by name, and finding what was lost."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from celery import Celery
from django.utils import timezone

from accounts.models import User
from chat.models import Import
from config.celery import app
from core import background
from tests.product import ROOT, until

SOURCES = ("accounts", "chat", "config", "core", "files", "llm", "personas", "projects")
TASK_NAME = re.compile(r"\"((?:\w+\.)+tasks\.\w+)\"")


def names(path: Path) -> set[str]:
    return set(TASK_NAME.findall(path.read_text()))


def test_every_task_that_is_named_anywhere_exists() -> None:
    app.loader.import_default_modules()
    named = {name for source in SOURCES for path in (ROOT / source).rglob("*.py") for name in names(path)}
    assert {"chat.tasks.run_turn", "files.tasks.read_file", "accounts.webhooks.tasks.deliver"} <= named
    assert named <= set(app.tasks)


@pytest.fixture
def broker_away() -> Iterator[None]:
    Celery("elsewhere", broker="redis://127.0.0.1:1/0").set_current()
    yield
    app.set_current()


@pytest.mark.usefixtures("broker_away")
def test_a_broker_that_is_away_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    background.enqueue("chat.tasks.run_turn", 7)
    assert "chat.tasks.run_turn(7,) waits for the sweeper" in caplog.text


@pytest.fixture
def waiting(db: None) -> Import:
    owner = User.objects.create_user("olga")
    return Import.objects.create(owner=owner, name="export", status=Import.Status.QUEUED)


def since(row: Import, seconds: int) -> None:
    Import.objects.filter(pk=row.pk).update(heartbeat=timezone.now() - timedelta(seconds=seconds))


def test_one_of_all_who_claim_a_row_gets_it_with_a_fresh_heartbeat(waiting: Import) -> None:
    since(waiting, 100)
    queued = Import.objects.filter(status=Import.Status.QUEUED)
    claims = [background.claim(queued, waiting.pk, status=Import.Status.RUNNING) for _ in range(3)]
    assert claims == [True, False, False]
    assert not background.silent(Import.objects.all()).exists()


def test_whoever_says_nothing_for_half_a_minute_is_gone(waiting: Import) -> None:
    since(waiting, 29)
    assert not background.silent(Import.objects.all()).exists()
    since(waiting, 31)
    assert background.silent(Import.objects.all()).get() == waiting


def test_what_nobody_claims_is_told_once_in_ten_seconds(waiting: Import) -> None:
    queued = Import.objects.filter(status=Import.Status.QUEUED)
    since(waiting, 9)
    assert background.unclaimed(queued) == []
    since(waiting, 11)
    assert background.unclaimed(queued) == [waiting.pk]
    assert background.unclaimed(queued) == []


@pytest.mark.django_db(transaction=True)
def test_who_is_at_work_is_heard_of_until_the_claim_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "EVERY", 0.01)
    long_ago = timezone.now() - timedelta(days=1)
    job = Import.objects.create(owner=User.objects.create_user("olga"), name="export", status=Import.Status.RUNNING)
    rows = Import.objects.filter(pk=job.pk)
    rows.update(heartbeat=long_ago)
    with background.heartbeat(rows.filter(attempt=job.attempt)):
        until(lambda: rows.filter(heartbeat__gt=long_ago).exists(), "a heartbeat")
        rows.update(attempt=job.attempt + 1, heartbeat=long_ago)
    assert rows.get().heartbeat == long_ago
