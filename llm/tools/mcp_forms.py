"""Turn an elicitation of an MCP server into a form, and the answer to the form into the protocol's result.

A form has at most `MAX_FIELDS` fields of the kinds that the protocol allows: texts, numbers, booleans and enums.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult

from core.net.url_safety import is_http
from core.text import clean
from llm.types.forms import MAX_FIELDS, FieldKind, FormAnswer, FormChoice, FormField, ToolQuestion

MAX_CHOICES = 200
MAX_MESSAGE = 4_000  # characters
MAX_LABEL = 500  # characters of a title, a description or a choice
FIELD_KINDS: Mapping[str, FieldKind] = {
    "string": "text",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
}
INPUT_TYPES: Mapping[str, str] = {"email": "email", "uri": "url", "date": "date"}


def to_form(params: ElicitRequestFormParams | ElicitRequestURLParams, number: int) -> ToolQuestion | None:
    """Return the form for an elicitation. None if it cannot be shown."""
    message = clean(params.message)[:MAX_MESSAGE]
    if isinstance(params, ElicitRequestURLParams):
        return ToolQuestion(number=number, message=message, url=params.url, fields=[]) if is_http(params.url) else None
    schema: Mapping[str, Any] = params.requested_schema
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or len(properties) > MAX_FIELDS:
        return None
    required = schema.get("required")
    names = set(required) if isinstance(required, Sequence) and not isinstance(required, str) else set()
    fields = [_to_field(str(name), each, required=name in names) for name, each in properties.items()]
    if any(field is None for field in fields):
        return None
    return ToolQuestion(number=number, message=message, url="", fields=[field for field in fields if field is not None])


def to_result(form: ToolQuestion, answer: FormAnswer) -> ElicitResult:
    """Return the protocol's result for an answer.

    An elicitation with an address has no content: the page at the address sends it to the server itself.
    """
    if answer.content is None:
        return ElicitResult(action="decline")
    return ElicitResult(action="accept", content=None if form["url"] else answer.content)


def _to_field(name: str, schema: Any, *, required: bool) -> FormField | None:
    """Return the field for a property of the schema.

    None for a kind that the protocol does not allow, and for a name of more than `MAX_LABEL` characters.
    """
    if not isinstance(schema, Mapping) or len(name) > MAX_LABEL:
        return None
    items = schema.get("items")
    choices = _read_choices(items if isinstance(items, Mapping) else schema)
    kind: FieldKind | None = FIELD_KINDS.get(str(schema.get("type")))
    if schema.get("type") == "array" and choices:
        kind = "choices"
    elif choices and kind == "text":
        kind = "choice"
    if kind is None or len(choices) > MAX_CHOICES:
        return None
    title = _to_label(schema.get("title")) or name
    field = FormField(
        name=name, title=title, description=_to_label(schema.get("description")), kind=kind, required=required
    )
    if choices:
        field["choices"] = choices
    _add_rules(field, schema)
    return field


def _add_rules(field: FormField, schema: Mapping[str, Any]) -> None:
    """Add the bounds, the default and the input of a property to its field."""
    kind = field["kind"]
    for member, names in (("least", ("minimum", "minLength")), ("most", ("maximum", "maxLength"))):
        bounds = (schema.get(each) for each in names)
        # PostgreSQL stores no infinite number.
        bound = next((each for each in bounds if isinstance(each, int | float) and math.isfinite(each)), None)
        if bound is not None and kind in ("text", "number", "integer"):
            field[member] = bound  # type: ignore[literal-required]  # one of two members of the same type
    default = schema.get("default")
    if isinstance(default, bool) or (isinstance(default, list) and kind == "choices"):
        field["default"] = default
    elif isinstance(default, str | int | float):
        field["default"] = str(default)[:MAX_MESSAGE]
    if kind == "text" and schema.get("format") in INPUT_TYPES:
        field["input"] = INPUT_TYPES[str(schema["format"])]


def _read_choices(schema: Mapping[str, Any]) -> list[FormChoice]:
    """Return the values of an enum with their labels: `enumNames`, or the titles of `oneOf` and `anyOf`."""
    alternatives = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(alternatives, list):
        pairs = [(each.get("const"), each.get("title")) for each in alternatives if isinstance(each, Mapping)]
    else:
        values = schema.get("enum")
        labels = schema.get("enumNames")
        values = values if isinstance(values, list) else []
        labels = labels if isinstance(labels, list) and len(labels) == len(values) else values
        pairs = list(zip(values, labels, strict=True))
    return [
        FormChoice(value=value[:MAX_LABEL], label=_to_label(label) or value[:MAX_LABEL])
        for value, label in pairs
        if isinstance(value, str)
    ]


def _to_label(text: Any) -> str:
    return clean(text).strip()[:MAX_LABEL] if isinstance(text, str) else ""
