"""`POST /api/v1/ag-ui/`: AG-UI 1.0 (docs.ag-ui.com). The input of a run comes in, its events go out."""

from typing import Any

from ag_ui.core import RunAgentInput
from django.db import close_old_connections
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.utils.translation import get_language
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from accounts.access.permissions import ScopedView, key_of
from chat.ag_ui import run_input, start_run, stream
from chat.ag_ui.translation import Head, Translation
from chat.prompts.options import options_of

EVENT_STREAM = "text/event-stream"


class _RefusalRenderer(JSONRenderer):
    """A client that asks for a stream gets refusals as JSON all the same."""

    media_type = EVENT_STREAM


class AgUiView(ScopedView):
    renderer_classes = (JSONRenderer, _RefusalRenderer)

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = super().dispatch(request, *args, **kwargs)
        if response.streaming:
            close_old_connections()  # the stream would otherwise hold this connection to its end
        return response

    @extend_schema(operation_id="ag_ui_run", request=RunAgentInput, responses={(200, EVENT_STREAM): OpenApiTypes.STR})
    def post(self, request: Request) -> HttpResponseBase:
        """Runs the agent as AG-UI says: each `data:` line is an event, from RUN_STARTED to RUN_FINISHED or RUN_ERROR.

        `threadId` is a conversation's id, or a new UUID. `messages` ends with what the user says, or with results of
        the program's `tools`; of a thread that is known here, earlier messages are not read: the stored ones count.
        `forwardedProps` may name a `model`, a `persona` and `files` by id.
        """
        wanted = run_input.read(request.data)
        turn, after_seq, parts = start_run.start(user=self.person, wanted=wanted, key=key_of(request))
        head = Head(
            thread=wanted.given.thread_id,
            run=wanted.given.run_id,
            turn=str(turn.pk),
            answer=str(turn.answer_id),
            model=turn.model.name if turn.model else "",
            external={tool.name for tool in options_of(turn.options).tools},
            absolute=request.build_absolute_uri,
        )
        told = stream.lines(Translation(head, parts), turn.pk, after_seq, get_language() or "")
        response = StreamingHttpResponse(told, content_type=EVENT_STREAM)
        response["Cache-Control"] = "no-store"
        response["X-Accel-Buffering"] = "no"  # nginx would hold events back
        return response
