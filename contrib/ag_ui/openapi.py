"""AG-UI in the OpenAPI document: its events, as the protocol's own package describes them, and an example."""

from typing import Any

from ag_ui.core import Event
from pydantic import TypeAdapter

from config.api_docs.schema import ID, OTHER, Document, message_of
from core.api.streams import EVENT_STREAM

OPERATION = "ag_ui_run"
PREFIX = "AgUi"  # of the names of components
EXAMPLE = {
    "threadId": ID,
    "runId": OTHER,
    "messages": [{"id": "1", "role": "user", "content": "Where is it warm in May?"}],
}


def complete(result: dict[str, Any], **context: Any) -> dict[str, Any]:
    """Add AG-UI's events to drf-spectacular's document, after `config.api_docs.schema.complete`."""
    result["components"]["schemas"] |= _components()
    for path in result["paths"].values():
        for operation in path.values():
            if operation["operationId"] == OPERATION:
                events = operation["responses"]["200"]["content"][EVENT_STREAM]
                events["schema"] = {"$ref": f"#/components/schemas/{PREFIX}EventMessage"}
                operation["requestBody"]["content"]["application/json"]["example"] = EXAMPLE
    return result


def _components() -> Document:
    event = TypeAdapter(Event).json_schema(ref_template=f"#/components/schemas/{PREFIX}{{model}}", mode="serialization")
    models = event.pop("$defs")
    return {
        **{f"{PREFIX}{name}": schema for name, schema in models.items()},
        f"{PREFIX}Event": event,
        f"{PREFIX}EventMessage": message_of(f"{PREFIX}Event"),
    }
