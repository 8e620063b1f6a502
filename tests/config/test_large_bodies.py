"""Whose large body is worked on when."""

import asyncio
from uuid import uuid4

import pytest

from config.http import large_bodies
from config.http.large_bodies import AT_ONCE, LargeBodies
from core.errors import ProductError


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
    async with turns.turn(person) as end:
        end()
        async with turns.turn(person):
            end()  # as the answer's second piece does: it is not the second body's turn that ends
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01), turns.turn(person):
                    pass


async def test_a_process_works_on_few_large_bodies_and_refuses_who_has_waited_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_bodies, "PATIENCE", 0.01)
    turns, ended = LargeBodies(), asyncio.Event()

    async def work() -> None:
        async with turns.turn(uuid4()):
            await ended.wait()

    working = [asyncio.create_task(work()) for _ in range(AT_ONCE)]
    await asyncio.sleep(0)
    with pytest.raises(ProductError, match="busy"):
        async with turns.turn(uuid4()):
            pass
    ended.set()
    await asyncio.gather(*working)
    async with turns.turn(uuid4()):
        pass
