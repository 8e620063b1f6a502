"""Order in which large bodies of several people are processed."""

import asyncio
import threading
from typing import Any
from uuid import UUID, uuid4

import pytest
from asgiref.sync import sync_to_async

from config.http import large_bodies
from config.http.large_bodies import CONCURRENT_BODIES, LargeBodies
from config.http.server import _run_in_turn
from core.errors import ProductError
from core.outside import wait_outside


async def test_large_bodies_of_a_person_have_their_turn_one_after_the_other() -> None:
    turns, person, order = LargeBodies(), uuid4(), list[str]()

    async def work(name: str) -> None:
        async with turns.turn(person):
            order.append(f"{name} begins")
            await asyncio.sleep(0)
            order.append(f"{name} ends")

    await asyncio.gather(work("first"), work("second"))
    assert order == ["first begins", "first ends", "second begins", "second ends"]


async def test_a_turn_that_ends_early_lets_the_next_begin_and_ends_once() -> None:
    turns, person = LargeBodies(), uuid4()
    async with turns.turn(person) as turn:
        turn.end()
        async with turns.turn(person):
            turn.end()  # as the answer's second piece does: it is not the second body's turn that ends
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01), turns.turn(person):
                    pass


async def test_a_process_works_on_few_large_bodies_and_refuses_who_has_waited_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_bodies, "WAIT_TIMEOUT", 0.01)
    turns, ended = LargeBodies(), asyncio.Event()

    async def work() -> None:
        async with turns.turn(uuid4()):
            await ended.wait()

    working = [asyncio.create_task(work()) for _ in range(CONCURRENT_BODIES)]
    await asyncio.sleep(0)
    with pytest.raises(ProductError, match="busy"):
        async with turns.turn(uuid4()):
            pass
    ended.set()
    await asyncio.gather(*working)
    async with turns.turn(uuid4()):
        pass


async def test_who_waits_for_another_server_holds_no_place_of_the_process_but_their_own_turn() -> None:
    """Otherwise three people whose embedder hangs would block everybody's pictures."""
    turns, person = LargeBodies(), uuid4()
    loop, arrived, answered = asyncio.get_running_loop(), asyncio.Semaphore(0), threading.Event()

    def view() -> None:
        with wait_outside():
            loop.call_soon_threadsafe(arrived.release)
            answered.wait(60)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await sync_to_async(view, thread_sensitive=False)()

    def request(who: UUID) -> "asyncio.Task[None]":
        return asyncio.create_task(_run_in_turn(turns, application, {"path": "/"}, noted, noted, who))

    async def noted(*message: Any) -> Any:
        pass

    waiting = [request(person), *(request(uuid4()) for _ in range(CONCURRENT_BODIES))]
    try:
        for _ in waiting:
            await asyncio.wait_for(arrived.acquire(), 60)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), turns.turn(person):
                pass
    finally:
        answered.set()
    await asyncio.gather(*waiting)
    async with turns.turn(person):
        pass
