"""The parts of the OpenAPI description that views do not declare: access, errors, streams, downloads, and examples."""

from copy import deepcopy
from typing import Any, TypeAlias

from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import get_lib_doc_excludes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.relations import SlugRelatedField

from chat.realtime import events
from core.api import idempotency
from core.api.fields import StrictSerializer
from core.api.streams import EVENT_STREAM
from core.json_types import JsonObject

Document: TypeAlias = JsonObject

ID = "0197d1f0-5c1e-7a30-9b1f-3f6c2b8d4e21"
SECOND_EXAMPLE_ID = "0197d1f0-6a77-7c44-8f02-91d0c55e7ab3"
WHEN = "2026-11-21T09:30:00Z"
PROBLEM: Document = {
    "type": "object",
    "description": "The reason for a refusal (RFC 9457). `code` is for programs, `detail` tells people what to do.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {"type": "object"},
            "description": "The errors of an invalid body, by field.",
        },
        "request_id": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail", "code", "errors", "request_id"],
    "example": {
        "type": "about:blank",
        "title": "Not found",
        "status": 404,
        "detail": "There is no such conversation, or it is not yours.",
        "code": "not_found",
        "errors": [],
        "request_id": "6f1d5b7a2f0c4a3b9d8e7c6b5a493827",
    },
}
TURN_EVENT: Document = {
    "oneOf": list(events.turn_event_schemas().values()),
    "discriminator": {"propertyName": "type"},
}
REFUSED: Document = {
    "description": "Refused; `code` and `detail` name the reason. After a temporary refusal, such as 429, "
    "`Retry-After` has the seconds to wait.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
FAILED: Document = {**REFUSED, "description": "A model provider or another service failed; `detail` says what to do."}
SECURITY: list[Document] = [{"token": []}, {"session": []}]


def classes_without_description() -> list[type]:
    """Return the base classes whose docstrings describe no schema."""
    return [*get_lib_doc_excludes(), StrictSerializer]  # type: ignore[no-untyped-call]  # has no annotations


def _operation(name: str, tag: str, summary: str, content: Document, parameters: "list[Document] | None" = None) -> Any:
    return {
        "get": {
            "operationId": name,
            "description": summary,
            "tags": [tag],
            "parameters": parameters or [],
            "security": SECURITY,
            "responses": {"200": {"description": "", "content": content}},
        }
    }


def message_of(component: str, more: Document | None = None) -> Document:
    """Return the schema of a server-sent event whose `data` is this component as JSON.

    OpenAPI before 3.2 cannot describe a single event, so the schema of `text/event-stream` describes each message.
    """
    data = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"$ref": f"#/components/schemas/{component}"},
    }
    return {
        "type": "object",
        "description": f"A message of a stream of server-sent events: its `data` is the JSON of a {component}.",
        "properties": {**(more or {}), "data": data},
        "required": ["data"],
    }


def _parameter(name: str, place: str, schema: Document, description: str = "") -> Document:
    return {"name": name, "in": place, "required": place == "path", "schema": schema, "description": description}


_IDENTIFIER = _parameter("id", "path", {"type": "string", "format": "uuid"})
_SEQ = {"type": "integer", "minimum": 0, "maximum": 999_999_999}
_SSE = (
    "The events of a turn in Glasshouse's own format, from the beginning to the end of the turn. Each event has a "
    "`data:` line with an object of the schema TurnEvent, its `seq` as `id:` and its type as `event:`. While there is "
    "no event, the stream sends comments, or the turn's position in the queue. After a lost connection, "
    "`Last-Event-ID` continues where the events stopped. If the events of a turn are no longer stored, the stream has "
    "one SNAPSHOT, and the turn itself has the answer."
)
_EVENTS_TOO = (
    "With `Accept: text/event-stream` the answer is the stream of the new turn's events, as of `turns/{id}/events/`, "
    "and `Location` is the turn. If no turn can begin, the answer is an error in JSON."
)
_EVENTS = {
    "schema": {"$ref": "#/components/schemas/TurnEventMessage"},
    "x-event-schema": {"$ref": "#/components/schemas/TurnEvent"},
    "example": f'id: 1\nevent: RUN_STARTED\ndata: {{"type":"RUN_STARTED","turn":"{ID}","seq":1}}\n\n',
}
PATHS: dict[str, Document] = {
    "/api/v1/turns/{id}/events/": _operation(
        "turns_events",
        "turns",
        _SSE,
        {EVENT_STREAM: _EVENTS},
        [
            _IDENTIFIER,
            _parameter("Last-Event-ID", "header", _SEQ, "The `seq` of the last event that arrived."),
            _parameter("after_seq", "query", _SEQ, "The same, where headers cannot be set."),
        ],
    ),
    "/api/v1/conversations/{id}/export/": _operation(
        "conversations_export",
        "conversations",
        "A conversation with all its branches, as a download.",
        {"application/json": {"schema": {"type": "object"}}, "text/markdown": {"schema": {"type": "string"}}},
        [_IDENTIFIER, _parameter("kind", "query", {"type": "string", "enum": ["json", "md"], "default": "json"})],
    ),
    "/api/v1/export/": _operation(
        "export",
        "conversations",
        "All conversations, as a download.",
        {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
    ),
}

# By operation: the request body, the response status and the response body.
EXAMPLES: dict[str, tuple[Any, str, Any]] = {
    "conversations_create": (
        {"title": "Holiday"},
        "201",
        {
            "id": ID,
            "title": "Holiday",
            "persona": None,
            "project": None,
            "leaf": None,
            "state": "idle",
            "automatic_summaries": True,
            "archived": False,
            "origin": "workspace",
            "created": WHEN,
            "updated": WHEN,
        },
    ),
    "conversations_turns_create": (
        {"text": "Where is it warm in May?", "files": [SECOND_EXAMPLE_ID]},
        "202",
        {
            "turns": [
                {
                    "id": ID,
                    "conversation": SECOND_EXAMPLE_ID,
                    "user_message": SECOND_EXAMPLE_ID,
                    "message": ID,
                    "model": SECOND_EXAMPLE_ID,
                    "answered_by": SECOND_EXAMPLE_ID,
                    "fallback_reason": "",
                    "finish_reason": "",
                    "finish_detail": "",
                    "slot": 0,
                    "status": "queued",
                    "text": "",
                    "parts": [],
                    "usage": None,
                    "cost": None,
                    "context_unread": 0,
                    "context_notice": "",
                    "send_less": False,
                    "error": None,
                    "created": WHEN,
                    "started": None,
                    "finished": None,
                }
            ]
        },
    ),
    "messages_edit_create": ({"text": "Where is it warm in April?"}, "", None),
    "personas_create": ({"name": "Editor", "instructions": "Mend my sentences and keep my words."}, "", None),
    "projects_create": ({"name": "Report", "instructions": "Numbers need a source."}, "", None),
    "projects_search_create": ({"query": "notice period", "limit": 5}, "", None),
    "tasks_create": ({"title": "Write the report", "level": "task", "horizon": "day", "date": "2026-11-21"}, "", None),
    "tokens_create": ({"name": "backup script", "scopes": ["chat", "files"]}, "", None),
    "webhooks_create": (
        {"url": "https://example.org/hooks/glasshouse", "events": ["turn.finished"]},
        "201",
        {
            "id": ID,
            "url": "https://example.org/hooks/glasshouse",
            "events": ["turn.finished"],
            "enabled": True,
            "note": "",
            "failing_since": None,
            "created": WHEN,
            "secret": "whsec_bm90LWEtc2VjcmV0",
            "left_out": "",
        },
    ),
}

IDEMPOTENCY_KEY = OpenApiParameter(
    idempotency.KEY_HEADER,
    str,
    OpenApiParameter.HEADER,
    description=f"At most {idempotency.MAX_KEY_LENGTH} characters. The same request with the same key within 24 hours"
    " gets the first answer. A token or secret in that answer is null, and `left_out` says so.",
)


class Schema(AutoSchema):
    """Adds the `Idempotency-Key` to every write, see `core.api.idempotency`."""

    def get_override_parameters(self) -> list[Any]:
        return [IDEMPOTENCY_KEY] if self.method in idempotency.WRITES else []


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # the base is untyped
    target_class = "accounts.access.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        description = "An API token. Create it on the settings page or with `manage.py token USER`."
        return {"type": "http", "scheme": "bearer", "description": description}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # as above
    target_class = "accounts.access.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": "sessionid", "description": "The browser's session."}


class RelatedListField(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # as above
    """Adds the maximum number of rows, which drf-spectacular omits, and the maximum length of a name."""

    target_class = "core.api.fields.RelatedList"
    match_subclasses = True

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> Document:
        child: Any = self.target.child_relation
        rows = child.queryset
        item = auto_schema._map_serializer_field(child, direction)
        if isinstance(child, SlugRelatedField):
            item["maxLength"] = rows.model._meta.get_field(child.slug_field).max_length
        return {"type": "array", "items": item, "maxItems": self.target.max_length}


class ListSerializerField(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # as above
    """Adds the maximum number of objects in a list, which drf-spectacular omits."""

    target_class = "rest_framework.serializers.ListSerializer"

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> Document:
        schema: Document = auto_schema._map_serializer_field(self.target, direction, bypass_extensions=True)
        if schema and self.target.max_length is not None:
            schema["maxItems"] = self.target.max_length
        return schema


def complete(result: Document, **context: Any) -> Document:
    """Add errors, views outside Django REST framework, and examples. drf-spectacular calls this at the end."""
    result["paths"] = dict(sorted({**result["paths"], **deepcopy(PATHS)}.items()))
    components = result["components"]
    message = message_of("TurnEvent", {"id": {"type": "string"}, "event": {"type": "string"}})
    components["schemas"] |= {"Problem": PROBLEM, "TurnEvent": TURN_EVENT, "TurnEventMessage": message}
    components["responses"] = {"Refused": REFUSED, "Failed": FAILED}
    for path in result["paths"].values():
        for operation in path.values():
            _complete(operation)
    return result


def _complete(operation: Document) -> None:
    responses = operation["responses"]
    if "202" in responses and (events := responses.get("200", {}).get("content", {}).get(EVENT_STREAM)):
        events |= _EVENTS
        operation["description"] += f" {_EVENTS_TOO}"
        responses["200"]["headers"] = {"Location": {"description": "The turn.", "schema": {"type": "string"}}}
    responses["4XX"] = {"$ref": "#/components/responses/Refused"}
    responses["502"] = {"$ref": "#/components/responses/Failed"}
    if operation["operationId"] not in EXAMPLES:
        return
    request, status, response = EXAMPLES[operation["operationId"]]
    operation["requestBody"]["content"]["application/json"]["example"] = request
    if status:
        responses[status]["content"]["application/json"]["example"] = response
