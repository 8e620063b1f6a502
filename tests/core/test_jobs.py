"""The base of all kinds of jobs: claims, heartbeats, and what the sweeper does with jobs that lost their worker.

Imports stand for the kinds. Tests of one kind, in its own folder, are about its own rules.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from accounts.models import User, Webhook, WebhookDelivery
from accounts.tasks import sweep_webhooks
from accounts.webhooks.sending import DELIVERIES
from chat.conversations.importing.jobs import IMPORTS
from chat.lab.services import REPLAYS
from chat.models import Import
from config.celery import app
from core import background, jobs
from core.jobs import JobKind
from core.tasks import sweep_jobs
from tests.product import until


@pytest.fixture
def row(db: None) -> Import:
    return Import.objects.create(owner=User.objects.create_user("olga"), name="export")


@pytest.fixture
def handed_out(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """The tasks and ids that a sweep hands to the broker."""
    messages: list[tuple[str, object]] = []
    monkeypatch.setattr(jobs, "enqueue", lambda task, pk: messages.append((task, pk)))
    return messages


def change(row: Import, *, age: float = 0, **fields: Any) -> Import:
    """Set columns of the row, and its heartbeat `age` seconds ago."""
    Import.objects.filter(pk=row.pk).update(heartbeat=timezone.now() - timedelta(seconds=age), **fields)
    row.refresh_from_db()
    return row


def test_one_of_all_workers_that_claim_a_row_gets_it_with_a_fresh_heartbeat(row: Import) -> None:
    change(row, age=100, imported=7)
    claims = [IMPORTS.claim(row.pk, "owner") for _ in range(3)]
    assert [claimed and claimed.pk for claimed in claims] == [row.pk, None, None]
    assert claims[0] is not None
    assert (claims[0].status, claims[0].attempt, claims[0].imported) == ("running", 1, 0)
    assert timezone.now() - claims[0].heartbeat < timedelta(seconds=20)


def delivery_of(owner: User) -> WebhookDelivery:
    webhook = Webhook.objects.create(owner=owner, url="https://example.org", origin="", secret="x")
    return WebhookDelivery.objects.create(
        webhook=webhook, event=uuid4(), type="turn.finished", payload={}, next_attempt=timezone.now()
    )


def import_of(owner: User) -> Import:
    return Import.objects.create(owner=owner, name="export")


@pytest.fixture
def owner(committed: None) -> Iterator[User]:
    person = User.objects.create_user(f"olga-{uuid4().hex}")
    yield person
    person.delete()


@pytest.fixture
def observer(committed: None) -> Iterator[BaseDatabaseWrapper]:
    """A second connection, to see which statements wait for a lock."""
    second = connection.copy()
    yield second
    second.close()


@pytest.mark.parametrize(("kind", "make"), [(IMPORTS, import_of), (DELIVERIES, delivery_of)])
def test_a_claim_that_waited_for_another_one_of_the_same_row_fails(
    owner: User, observer: BaseDatabaseWrapper, kind: JobKind[Any], make: Any
) -> None:
    pk = make(owner).pk

    def second_claim() -> object:
        try:
            return kind.claim(pk)
        finally:
            connections.close_all()

    def a_claim_waits() -> bool:
        with observer.cursor() as cursor:
            cursor.execute("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE%%'")
            return bool(cursor.rowcount)

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            assert kind.claim(pk) is not None
            second = pool.submit(second_claim)
            until(a_claim_waits, "the second claim waits for the first")
        assert second.result() is None


def test_the_conditions_of_every_claim_are_on_the_rows_own_columns() -> None:
    for kind in jobs.kinds():
        rows = kind.model._default_manager.filter(kind.waiting | kind.resumable)
        str(rows.query)  # which names the tables that the statement needs
        tables = [alias for alias, uses in rows.query.alias_refcount.items() if uses]
        assert tables == [kind.model._meta.db_table], kind.task


def test_every_kind_has_a_task() -> None:
    app.loader.import_default_modules()
    tasks = {kind.task for kind in jobs.kinds()}
    assert {"chat.tasks.replay", "files.tasks.index_file", "accounts.webhooks.tasks.deliver"} < tasks <= set(app.tasks)


def test_a_worker_without_a_heartbeat_is_lost_and_its_claim_with_it(row: Import) -> None:
    row = change(row, status="running", attempt=1)
    seconds = IMPORTS.stale_after.total_seconds()
    change(row, age=seconds - 1)
    assert not IMPORTS.lost().exists() and IMPORTS.claim(row.pk) is None
    assert IMPORTS.renew(row)
    change(row, age=seconds + 1)
    assert IMPORTS.lost().get() == row
    taken_over = IMPORTS.claim(row.pk)
    assert taken_over is not None and taken_over.attempt == 2
    assert not IMPORTS.renew(row) and not IMPORTS.claimed(row).exists()
    assert IMPORTS.claimed(taken_over).get() == row


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_worker_whose_clock_is_wrong_claims_as_others_do(
    row: Import, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    now = timezone.now
    change(row, age=IMPORTS.stale_after.total_seconds() - 1, status="running")
    monkeypatch.setattr(timezone, "now", lambda: now() + timedelta(minutes=minutes))
    assert IMPORTS.claim(row.pk) is None
    monkeypatch.undo()
    change(row, age=IMPORTS.stale_after.total_seconds() + 1)
    monkeypatch.setattr(timezone, "now", lambda: now() + timedelta(minutes=minutes))
    claimed = IMPORTS.claim(row.pk)
    assert claimed is not None and abs(now() - claimed.heartbeat) < timedelta(seconds=20)


def test_a_job_that_nobody_claims_is_handed_out_once_in_ten_seconds(row: Import) -> None:
    change(row, age=9)
    assert IMPORTS.to_hand_out() == []
    change(row, age=11)
    assert IMPORTS.to_hand_out() == [row.pk]
    assert IMPORTS.to_hand_out() == []


def test_a_kind_with_a_batch_hands_out_the_first_of_its_line_and_keeps_their_places(row: Import) -> None:
    change(row, age=20)
    first, second = (change(import_of(row.owner), age=age) for age in (40, 30))
    line = replace(IMPORTS, batch=2)
    assert line.to_hand_out() == line.to_hand_out() == [first.pk, second.pk]


def test_a_worker_at_work_renews_its_heartbeat_until_the_claim_is_lost(
    owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "HEARTBEAT_INTERVAL", 0.01)
    row = change(import_of(owner), age=86_400, status="running")
    long_ago = row.heartbeat
    rows = Import.objects.filter(pk=row.pk)
    with IMPORTS.alive(row):
        until(lambda: rows.filter(heartbeat__gt=long_ago).exists(), "a heartbeat")
        rows.update(attempt=row.attempt + 1, heartbeat=long_ago)
    assert rows.get().heartbeat == long_ago


def test_a_job_that_keeps_losing_its_worker_is_given_up(row: Import, handed_out: list[tuple[str, object]]) -> None:
    change(row, age=100, status="running", tries=2)
    jobs.sweep(IMPORTS)
    assert handed_out == [(IMPORTS.task, row.pk)]
    change(row, age=100, tries=3)
    assert IMPORTS.claim(row.pk) is None
    jobs.sweep(IMPORTS)
    row.refresh_from_db()
    assert (row.status, row.error_code, len(handed_out)) == ("failed", "import_gave_up", 1)
    jobs.sweep(IMPORTS)
    assert IMPORTS.claim(row.pk) is None and len(handed_out) == 1


def test_a_lost_job_whose_row_is_locked_is_left_to_the_next_sweep(
    owner: User, observer: BaseDatabaseWrapper, handed_out: list[tuple[str, object]]
) -> None:
    row = change(import_of(owner), age=100, status="running", tries=3)
    observer.set_autocommit(False)
    with observer.cursor() as cursor:
        cursor.execute("SELECT FROM chat_import WHERE id = %s FOR UPDATE", [row.pk])
    jobs.sweep(IMPORTS)
    assert Import.objects.get(pk=row.pk).status == "running"
    observer.rollback()
    jobs.sweep(IMPORTS)
    assert Import.objects.get(pk=row.pk).error_code == "import_gave_up"
    assert (IMPORTS.task, row.pk) not in handed_out


def test_an_error_in_the_sweep_of_one_kind_leaves_out_no_other(
    row: Import, handed_out: list[tuple[str, object]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(lost: object) -> None:
        raise RuntimeError("of this kind alone")

    monkeypatch.setattr(jobs, "_registrations", {})
    jobs.register(REPLAYS, on_lost=fail)
    jobs.register(IMPORTS)
    change(row, age=11)
    sweep_jobs()
    assert handed_out == [(IMPORTS.task, row.pk)]
    assert "of this kind alone" in caplog.text


def test_the_message_of_an_older_beat_process_sweeps_all_kinds(
    row: Import, handed_out: list[tuple[str, object]]
) -> None:
    change(row, age=11)
    sweep_webhooks()
    assert (IMPORTS.task, row.pk) in handed_out
