"""`POST /api/v1/ag-ui/`: AG-UI 1.0 (docs.ag-ui.com). The body is the input of a run, the answer a stream of events."""

import logging
from collections.abc import AsyncIterator

from ag_ui.core import RunAgentInput, RunErrorEvent
from ag_ui.encoder import EventEncoder
from django.http import HttpResponseBase
from django.utils.translation import get_language, override
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request

from accounts.access.api_views import ScopedView
from accounts.access.authentication import Credential
from accounts.realtime import require_connection_of_request
from chat.models import Turn
from chat.prompts.turn_context import parse_options
from chat.realtime import event_stream
from chat.realtime.events import EventType
from chat.turns.store import UNEXPECTED
from contrib.ag_ui import run_input, start_run
from contrib.ag_ui.translation import RunContext, Translation
from core.api.idempotency import read_key
from core.api.streams import EVENT_STREAM, JSON_OR_EVENTS

logger = logging.getLogger(__name__)


class AgUiView(ScopedView):
    renderer_classes = JSON_OR_EVENTS
    new_each_time = ("runId",)

    @extend_schema(operation_id="ag_ui_run", request=RunAgentInput, responses={(200, EVENT_STREAM): OpenApiTypes.STR})
    def post(self, request: Request) -> HttpResponseBase:
        """Run the agent by the AG-UI protocol. Each `data:` line is an event, from RUN_STARTED to RUN_FINISHED or
        RUN_ERROR.

        `threadId` is a conversation's id, or a new UUID. `messages` ends with a message of the user, or with results
        of the program's `tools`. For a known thread, earlier messages are ignored, since the stored ones count.
        `forwardedProps` may name a `model`, a `persona` and `files` by id.
        """
        run = run_input.read_run_input(request.data)
        require_connection_of_request(self.person.pk)
        turn, after_seq, parts = start_run.start_run(user=self.person, run=run, key=read_key(request))
        context = RunContext(
            thread=run.agent_input.thread_id,
            run=run.agent_input.run_id,
            turn=str(turn.pk),
            answer=str(turn.answer_id),
            model=turn.model.name if turn.model else "",
            external={tool.name for tool in parse_options(turn.options).tools},
            absolute_url=request.build_absolute_uri,
            messages=run.agent_input.messages,
        )
        lines = _lines(Translation(context, parts), turn, after_seq, get_language() or "")
        return event_stream.stream_response(Credential.of(request._request, self.person), lines)


async def _lines(translation: Translation, turn: Turn, after_seq: int, language: str) -> AsyncIterator[str]:
    """Yield the lines of the stream, from RUN_STARTED to RUN_FINISHED or RUN_ERROR.

    A comment follows each 2.5 s of silence. A client that disconnects does not stop the turn.
    """
    encode = EventEncoder().encode
    yield encode(translation.begin())
    try:
        async for wire in event_stream.wire_events(turn, after_seq):
            if not wire:
                yield ": waiting\n\n"
                continue
            ended = wire["type"] == EventType.SNAPSHOT and wire["status"] not in Turn.LIVE
            row = await event_stream.load_turn(turn.pk) if ended else None
            with override(language):  # the stream is read after the middleware that chose the language has ended
                events = translation.feed(event_stream.translate_event(wire))
                events += [] if row is None else translation.end(row)
            for event in events:
                yield encode(event)
            if translation.ended:
                return
    except Exception:
        logger.exception("the AG-UI stream of turn %s ended with an error", turn.pk)
        with override(language):
            yield encode(RunErrorEvent(message=str(UNEXPECTED.detail), code=UNEXPECTED.code))
