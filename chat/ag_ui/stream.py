"""A run on its way to its client, as server-sent events. A client that goes away does not stop the turn."""

import logging
from collections.abc import AsyncIterator
from uuid import UUID

from ag_ui.core import RunErrorEvent
from ag_ui.encoder import EventEncoder
from django.utils.translation import override

from chat.ag_ui.translation import Translation
from chat.models import Turn
from chat.realtime import follow
from chat.turns.outcome import UNEXPECTED
from core.i18n import translated

logger = logging.getLogger(__name__)


async def lines(translation: Translation, turn_id: UUID, after_seq: int, language: str) -> AsyncIterator[str]:
    """From RUN_STARTED to RUN_FINISHED or RUN_ERROR; a comment after each 5 s of silence."""
    encode = EventEncoder().encode
    yield encode(translation.begin())
    try:
        async for wire in follow.events(turn_id, after_seq, idle=True):
            if not wire:
                yield ": waiting\n\n"
                continue
            row = await follow.on_database(_ended)(turn_id) if wire["type"] == "SNAPSHOT" else None
            with override(language):  # a stream is read when the middleware that chose it has ended
                told = translation.feed(follow.readable(wire)) if row is None else translation.catch_up(row)
            for event in told:
                yield encode(event)
            if translation.ended:
                return
    except Exception:
        logger.exception("the AG-UI stream of turn %s broke off", turn_id)
        with override(language):
            yield encode(RunErrorEvent(message=translated(UNEXPECTED.detail), code=UNEXPECTED.code))


def _ended(turn_id: UUID) -> Turn:
    return Turn.objects.select_related("answer").get(pk=turn_id)
