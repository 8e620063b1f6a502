"""Relays a turn to the program that waits for it; a program that goes away stops its turn."""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

from chat.models import Turn
from chat.openai_api import errors
from chat.openai_api.serialize import Chunk, Completion
from chat.realtime import follow
from chat.realtime.follow import on_database
from chat.turns.services import stop_turn
from core.errors import ProductError

logger = logging.getLogger(__name__)


class Relay:
    """One turn on its way to one program. An async iterable of the lines of a stream.

    `close` stops the turn unless it has ended; Django calls it when a streamed response is over, however it ends.
    """

    def __init__(self, turn: Turn, completion: Completion) -> None:
        self._turn, self._completion = turn, completion
        self._chunks = self._follow()
        self._ready: list[Chunk] = []

    async def begin(self) -> None:
        """Waits for the first words, or for five silent seconds: until then an error can have a status of its own."""
        async for chunk in self._chunks:
            if chunk:
                self._ready.append(chunk)
            return

    async def whole(self) -> dict[str, Any]:
        async for _chunk in self._chunks:
            pass
        return self._completion.whole()

    async def __aiter__(self) -> AsyncIterator[str]:
        for chunk in self._ready:
            yield _line(chunk)
        try:
            async for chunk in self._chunks:
                yield _line(chunk) if chunk else ": waiting\n\n"
        except ProductError as error:
            yield _line(errors.body(error))
        except Exception:
            logger.exception("the stream of turn %s broke off", self._turn.pk)
            sentence = "Something went wrong on the server while answering. Try again."
            yield _line(errors.body(ProductError("internal_error", sentence, status=500)))
        else:
            yield "data: [DONE]\n\n"

    def close(self) -> None:
        if not self._completion.ended:
            stop_turn(user=self._turn.conversation.owner, turn=self._turn)

    async def _follow(self) -> AsyncIterator[Chunk]:
        """The turn's chunks, until its last; an empty one after each 5 s of silence. Raises how it failed."""
        async for event in follow.events(self._turn.pk, 0, idle=True):
            if not event:
                yield {}
                continue
            chunks = await self._from_row() if event["type"] == "SNAPSHOT" else self._completion.feed(event)
            for chunk in chunks:
                yield chunk

    async def _from_row(self) -> list[Chunk]:
        return self._completion.catch_up(await on_database(_ended)(self._turn))


def _ended(turn: Turn) -> Turn:
    return Turn.objects.select_related("answer").get(pk=turn.pk)


def _line(value: Any) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"
