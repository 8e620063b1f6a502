"""`/api/v1/asyncapi/`: the WebSocket as an AsyncAPI 3 document, made from `chat.realtime.events`."""

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.utils.translation import override
from django.views.generic import View
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request

from chat.realtime import events
from core.json_types import JsonObject

DESCRIPTION = (
    "One socket carries all events that a page or a program follows. Browsers open it with their session, from a page "
    "of this site. Programs open it with the header `Authorization: Bearer …` and a token of scope `chat`. The server "
    "answers every frame with ACK or ERROR and its `id`. After a lost connection, `subscribe` with the last `seq` "
    "continues where the events stopped. Close codes:"
)


class AsyncApiView(View):
    """The public view of the AsyncAPI document. It needs no sign-in, since the document holds no data."""

    http_method_names = ("get", "head")

    def get(self, request: HttpRequest) -> JsonResponse:
        return JsonResponse(document(request.get_host(), secure=request.is_secure()))


class SchemaView(SpectacularAPIView):
    """The OpenAPI description. It is in English for all readers, since it contains translatable names of rows."""

    def _get_schema_response(self, request: Request) -> Any:
        with override(settings.LANGUAGE_CODE):
            return super()._get_schema_response(request)  # type: ignore[no-untyped-call]  # drf_spectacular's


def document(host: str, *, secure: bool) -> JsonObject:
    """Return the AsyncAPI document of the socket at this host."""
    sent = events.socket_event_schemas()
    received = events.frame_schemas()
    messages = {**sent, **received}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Glasshouse",
            "version": "1",
            "description": "Answers as they are written. The same events come from `GET /api/v1/turns/{id}/events/`.",
        },
        "defaultContentType": "application/json",
        "servers": {
            "site": {
                "host": host,
                "protocol": "wss" if secure else "ws",
                "security": [{"$ref": f"#/components/securitySchemes/{name}"} for name in ("token", "session")],
            }
        },
        "channels": {
            "socket": {
                "address": "/ws/",
                "description": DESCRIPTION + "".join(f"\n* {code}: {why}" for code, why in events.CLOSE_CODES.items()),
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
                "x-close-codes": {str(code): why for code, why in events.CLOSE_CODES.items()},
            }
        },
        "operations": {
            "receive": _operation("receive", "What a client sends.", received),
            "send": _operation("send", "What the server sends.", sent),
        },
        "components": {
            "messages": {name: _message(name, schema) for name, schema in messages.items()},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "An API token of scope `chat`."},
                "session": {"type": "httpApiKey", "in": "cookie", "name": "sessionid"},
            },
        },
    }


def _operation(action: str, summary: str, messages: Iterable[str]) -> JsonObject:
    return {
        "action": action,
        "channel": {"$ref": "#/channels/socket"},
        "summary": summary,
        "messages": [{"$ref": f"#/channels/socket/messages/{name}"} for name in messages],
    }


def _message(name: str, schema: JsonObject) -> JsonObject:
    meaning = {"summary": events.MEANINGS[name]} if name in events.MEANINGS else {}
    return {"name": name, **meaning, "payload": schema}
