"""What a worker's event loop carries, and how it ends; on the process's real loop."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from core import background
from tests.product import WAIT


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    background.end(0)
    background.join()


def test_whoever_hands_work_over_does_not_wait_for_it() -> None:
    done, go_on = threading.Event(), asyncio.Event()

    async def work() -> None:
        await go_on.wait()
        done.set()

    background.carry(work())
    assert not done.is_set()
    background.loop().call_soon_threadsafe(go_on.set)
    background.join()
    assert done.is_set()


def test_a_thousand_that_wait_take_no_thread() -> None:
    background.submit(asyncio.sleep(0)).result()
    threads = threading.active_count()
    for _ in range(1_000):
        background.carry(asyncio.Event().wait())
    background.submit(asyncio.sleep(0)).result()
    assert threading.active_count() <= threads


def test_what_does_not_get_done_in_time_is_cancelled_once_and_may_put_things_in_order() -> None:
    said: list[str] = []
    begun = threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            said.append("told to end")
            await asyncio.sleep(0)
            said.append("in order")

    background.carry(work())
    assert begun.wait(WAIT)
    background.end(0)
    background.join()
    assert said == ["told to end", "in order"]


def test_what_was_handed_over_just_before_the_end_holds_nobody_up() -> None:
    for _ in range(1_000):
        background.carry(asyncio.Event().wait())
        background.end(0)
        background.join()


def test_an_error_in_one_is_logged_and_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise RuntimeError("of this one alone")

    background.carry(fails())
    background.join()
    assert "of this one alone" in caplog.text
    assert background.submit(asyncio.sleep(0, "alive")).result() == "alive"


async def test_what_must_not_be_left_half_done_is_done_although_whoever_waits_is_cancelled() -> None:
    go_on, half = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        half.set()
        await go_on.wait()
        return "whole"

    waiting = asyncio.create_task(background.completed(work()))
    await half.wait()
    waiting.cancel()
    go_on.set()
    assert await waiting == "whole"
    assert waiting.cancelling() == 1
