"""Views that can answer with a stream of events."""

from rest_framework.renderers import JSONRenderer

EVENT_STREAM = "text/event-stream"


class _Refusal(JSONRenderer):
    """Render refusals as JSON, also for a client that asks for a stream."""

    media_type = EVENT_STREAM


JSON_OR_EVENTS = (JSONRenderer, _Refusal)  # of a view that can answer with a stream of events
