"""Views that can answer with a stream of events."""

from rest_framework.renderers import JSONRenderer

EVENT_STREAM = "text/event-stream"


class _Refusal(JSONRenderer):
    """A client that asks for a stream gets refusals as JSON all the same."""

    media_type = EVENT_STREAM


JSON_OR_EVENTS = (JSONRenderer, _Refusal)  # of a view that can answer with a stream of events
