"""Renderers for views that can answer with a stream of events."""

from rest_framework.renderers import JSONRenderer

EVENT_STREAM = "text/event-stream"


class _ErrorRenderer(JSONRenderer):
    """Render errors as JSON for a client that asks for a stream."""

    media_type = EVENT_STREAM


JSON_OR_EVENTS = (JSONRenderer, _ErrorRenderer)  # the renderers of a view that can answer with a stream of events
