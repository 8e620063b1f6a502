"""Work outside of requests: the event loop, enqueueing work by name, and recovery of lost work."""

import asyncio
import gc
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from celery import Celery
from django.utils import timezone
from pytest_django.fixtures import Settings

from accounts.models import User
from chat.models import Import
from config.celery import app
from core import background
from tests.config.sources import modules, packages
from tests.product import WAIT, until


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    background.cancel_background_tasks(0)
    background.wait_for_background_tasks()


def test_whoever_hands_work_over_does_not_wait_for_it() -> None:
    done, go_on = threading.Event(), asyncio.Event()

    async def work() -> None:
        await go_on.wait()
        done.set()

    background.run_in_background(work())
    assert not done.is_set()
    background.loop().call_soon_threadsafe(go_on.set)
    background.wait_for_background_tasks()
    assert done.is_set()


def test_a_thousand_that_wait_take_no_thread() -> None:
    background.submit(asyncio.sleep(0)).result()
    threads = threading.active_count()
    for _ in range(1_000):
        background.run_in_background(asyncio.Event().wait())
    background.submit(asyncio.sleep(0)).result()
    assert threading.active_count() <= threads


def test_what_does_not_get_done_in_time_is_cancelled_once_and_may_put_things_in_order() -> None:
    lines: list[str] = []
    running = threading.Event()

    async def work() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lines.append("told to end")
            await asyncio.sleep(0)
            lines.append("in order")

    background.run_in_background(work())
    assert running.wait(WAIT)
    background.cancel_background_tasks(0)
    background.wait_for_background_tasks()
    assert lines == ["told to end", "in order"]


def test_what_was_handed_over_just_before_the_end_holds_nobody_up() -> None:
    for _ in range(1_000):
        background.run_in_background(asyncio.Event().wait())
        background.cancel_background_tasks(0)
        background.wait_for_background_tasks()


def test_an_error_in_one_is_logged_and_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise RuntimeError("of this one alone")

    background.run_in_background(fails())
    background.wait_for_background_tasks()
    assert "of this one alone" in caplog.text
    assert background.submit(asyncio.sleep(0, "alive")).result() == "alive"


async def test_what_must_not_be_left_half_done_is_done_although_whoever_waits_is_cancelled() -> None:
    go_on, half = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        half.set()
        await go_on.wait()
        return "whole"

    waiting = asyncio.create_task(background.run_to_completion(work()))
    await half.wait()
    waiting.cancel()
    go_on.set()
    assert await waiting == "whole"
    assert waiting.cancelling() == 1


async def test_work_ends_early_before_a_cancellation_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    noticed = []

    async def work(abandoned: threading.Event) -> None:
        began.set()
        await go_on.wait()
        noticed.append(abandoned.is_set())
        raise ValueError("abandoned")

    waiting = asyncio.create_task(background.run_until_abandoned(work))
    await began.wait()
    for _ in range(3):
        waiting.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()  # the work still runs
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gc.collect()  # where asyncio logs errors that nobody has asked for
    assert noticed == [True] and not caplog.records


TASK_NAME = re.compile(r"\"((?:\w+\.)+tasks\.\w+)\"")


def names(path: Path) -> set[str]:
    return set(TASK_NAME.findall(path.read_text()))


def test_every_task_that_is_named_anywhere_exists() -> None:
    app.loader.import_default_modules()
    named = {name for path in modules(*packages()) for name in names(path)}
    assert {"chat.tasks.send_next", "files.tasks.read_file", "accounts.webhooks.tasks.deliver"} <= named
    assert named <= set(app.tasks)


@pytest.fixture
def broker_away() -> Iterator[None]:
    Celery("elsewhere", broker="redis://127.0.0.1:1/0").set_current()
    yield
    app.set_current()


@pytest.mark.usefixtures("broker_away")
def test_a_broker_that_is_away_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    background.enqueue("chat.tasks.send_next", 7)
    assert "chat.tasks.send_next(7,) waits for the sweeper" in caplog.text


def test_jobs_are_taken_in_the_order_of_their_arrival_and_one_put_again_keeps_its_place() -> None:
    queue, first, second, third = background.Queue(f"test:{uuid4()}"), uuid4(), uuid4(), uuid4()
    for job in (first, second, third, first):
        queue.put(job)
    places = [background.submit(queue.position(job)).result() for job in (first, second, third, uuid4())]
    assert places == [1, 2, 3, None]
    queue.remove(second)
    assert [background.submit(queue.take()).result() for _ in range(2)] == [first, third]
    taking = background.submit(queue.take())
    queue.put(second)
    assert taking.result(WAIT) == second
    assert queue.length() == 0


def test_a_redis_that_is_away_is_no_error_of_who_hands_over(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.STREAMS_URL = "redis://127.0.0.1:1/0"
    queue, job = background.Queue("test"), uuid4()
    queue.put(job)
    queue.remove(job)
    assert f"{job} of test waits for the sweeper" in caplog.text


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
    assert not background.stale_rows(Import.objects.all()).exists()


def test_whoever_says_nothing_for_half_a_minute_is_gone(waiting: Import) -> None:
    since(waiting, 29)
    assert not background.stale_rows(Import.objects.all()).exists()
    since(waiting, 31)
    assert background.stale_rows(Import.objects.all()).get() == waiting


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_worker_whose_clock_is_wrong_takes_nobody_for_gone_and_is_not_taken_for_it(
    waiting: Import, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    now = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: now() + timedelta(minutes=minutes))
    queued = Import.objects.filter(status=Import.Status.QUEUED)
    since(waiting, 29 + minutes * 60)
    assert not background.stale_rows(queued).exists()
    since(waiting, 31 + minutes * 60)
    assert background.stale_rows(queued).get() == waiting
    assert background.claim(queued, waiting.pk, status=Import.Status.RUNNING)
    monkeypatch.undo()
    assert abs(timezone.now() - Import.objects.get(pk=waiting.pk).heartbeat) < timedelta(seconds=20)


def test_what_nobody_claims_is_told_once_in_ten_seconds(waiting: Import) -> None:
    queued = Import.objects.filter(status=Import.Status.QUEUED)
    since(waiting, 9)
    assert background.take_unclaimed(queued) == []
    since(waiting, 11)
    assert background.take_unclaimed(queued) == [waiting.pk]
    assert background.take_unclaimed(queued) == []


def test_who_is_at_work_is_heard_of_until_the_claim_is_lost(committed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "HEARTBEAT_INTERVAL", 0.01)
    long_ago = timezone.now() - timedelta(days=1)
    owner = User.objects.create_user(f"olga-{uuid4().hex}")
    job = Import.objects.create(owner=owner, name="export", status=Import.Status.RUNNING)
    rows = Import.objects.filter(pk=job.pk)
    rows.update(heartbeat=long_ago)
    with background.heartbeat(rows.filter(attempt=job.attempt)):
        until(lambda: rows.filter(heartbeat__gt=long_ago).exists(), "a heartbeat")
        rows.update(attempt=job.attempt + 1, heartbeat=long_ago)
    assert rows.get().heartbeat == long_ago
    owner.delete()


def test_work_for_the_database_that_raises_stop_iteration_ends_whoever_waits() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        background.submit(background.on_database(next, iter(()))).result(60)
