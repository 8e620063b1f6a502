"""Add AG-UI to the OpenAPI document: the event schemas of the protocol's own package, and an example."""

from typing import Any

from ag_ui.core import Event
from pydantic import TypeAdapter

from config.api_docs.schema import ID, SECOND_EXAMPLE_ID, Document, message_of
from contrib.ag_ui.run_input import MAX_CHARACTERS, MAX_ITEMS
from core.api.streams import EVENT_STREAM

OPERATION_ID = "ag_ui_run"
PREFIX = "AgUi"  # prefix of component names
EXAMPLE = {
    "threadId": ID,
    "runId": SECOND_EXAMPLE_ID,
    "messages": [{"id": "1", "role": "user", "content": "Where is it warm in May?"}],
}


def complete(result: dict[str, Any], **context: Any) -> dict[str, Any]:
    """Add AG-UI's events to drf-spectacular's document, after `config.api_docs.schema.complete`."""
    result["components"]["schemas"] |= _components()
    _add_run_input_bounds(result["components"]["schemas"])
    for path in result["paths"].values():
        for operation in path.values():
            if operation["operationId"] == OPERATION_ID:
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


def _add_run_input_bounds(schemas: dict[str, Any]) -> None:
    """Add the maximum lengths of texts and lists to AG-UI's request schemas."""
    pending, visited = ["RunAgentInputRequest"], set[str]()
    while pending:
        name = pending.pop()
        if name not in visited:
            visited.add(name)
            _add_bounds(schemas[name], "", pending)


def _add_bounds(schema: Any, member: str, pending: list[str]) -> None:
    """Add maximum lengths below the schema of `member`. Add the names of referenced schemas to `pending`."""
    if "$ref" in schema:
        pending.append(schema["$ref"].rpartition("/")[2])
    if schema.get("type") == "string" and not {"enum", "const"} & set(schema):
        schema.setdefault("maxLength", MAX_CHARACTERS)
    if schema.get("type") == "array":
        schema.setdefault("maxItems", MAX_ITEMS[member])
        _add_bounds(schema.get("items", {}), member, pending)
    for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        _add_bounds(option, member, pending)
    for name, property_schema in schema.get("properties", {}).items():
        _add_bounds(property_schema, name, pending)
