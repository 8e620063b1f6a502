"""Adapt the OpenAPI description to generators of clients.

* An object inside another schema gets a title, after which generators name its class. Without titles, some generators
  derive the same name for two objects, and omit both with every schema that contains them.
* The default of a request member moves into its description. Generators treat a member with a default as always
  present, as it is in answers, and would require the caller to send it.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from core.json_types import JsonObject

Document: TypeAlias = JsonObject

_COMBINED = ("oneOf", "anyOf", "allOf")
_WORD = re.compile(r"[A-Za-z0-9]+")


def complete(result: Document, **context: Any) -> Document:
    """Complete the document, as drf-spectacular's last step."""
    schemas = result["components"]["schemas"]
    titles = set(schemas)
    for name, schema in schemas.items():
        schemas[name] = _with_titles_within(schema, name, titles)
        if schema.get("type") == "object":
            schemas[name].pop("title", None)  # its name is unique, but its title may not be
        if name.endswith("Request"):
            _describe_defaults(schemas[name], partial=name.startswith("Patched"))
    for operation in _operations(result):
        for place, content in _contents(operation):
            for media_type in content.values():
                if "schema" in media_type:
                    name = f"{_pascal(operation['operationId'])}{place}"
                    media_type["schema"] = _with_titles(media_type["schema"], name, titles)
    return result


def _operations(result: Document) -> Iterator[Document]:
    for path in result["paths"].values():
        yield from path.values()


def _contents(operation: Document) -> Iterator[tuple[str, Document]]:
    """Yield the contents of the request and of each answer, with a word for use in names: `Request`, `Answer200`."""
    yield "Request", operation.get("requestBody", {}).get("content", {})
    for status, response in operation["responses"].items():
        yield f"Answer{status}", response.get("content", {})


def _with_titles(schema: Document, name: str, titles: set[str]) -> Document:
    """Return a copy of an unnamed schema, with a title if it is an object. `name`: the title to use by default."""
    entitled = _with_titles_within(schema, name, titles)
    if schema.get("type") == "object" and "properties" in schema:
        entitled["title"] = _unique(str(schema.get("title") or name), titles)
    return entitled


def _with_titles_within(schema: Document, name: str, titles: set[str]) -> Document:
    """Return a copy of a schema in which each inner object has a unique title.

    It is a copy, since several parts of the document may share one Python object.
    """
    entitled = dict(schema)
    if "properties" in schema:
        members = schema["properties"].items()
        entitled["properties"] = {
            member: _with_titles(child, f"{name}{_pascal(member)}", titles) for member, child in members
        }
    for member, word in (("items", "Item"), ("additionalProperties", "Value")):
        if isinstance(child := schema.get(member), dict):
            entitled[member] = _with_titles(child, f"{name}{word}", titles)
    for combined in _COMBINED:
        if combined in schema:
            entitled[combined] = [
                _with_titles(variant, f"{name}{_variant(variant, number)}", titles)
                for number, variant in enumerate(schema[combined], 1)
            ]
    return entitled


def _variant(schema: Document, number: int) -> str:
    """Return a word for one variant of a combined schema: its constant `type`, else its number."""
    kind = schema.get("properties", {}).get("type", {}).get("const")
    return _pascal(kind) if kind else str(number)


def _unique(name: str, titles: set[str]) -> str:
    title, number = name, 2
    while title in titles:
        title, number = f"{name}{number}", number + 1
    titles.add(title)
    return title


def _pascal(text: str) -> str:
    words = _WORD.findall(text)
    return "".join(word.capitalize() if word.isupper() else word[:1].upper() + word[1:] for word in words)


def _describe_defaults(schema: Document, *, partial: bool) -> None:
    """Move the defaults of the members into their descriptions.

    In a partial request a missing member keeps its value, so the default is only removed.
    """
    for member in schema.get("properties", {}).values():
        if "default" in member:
            default = json.dumps(member.pop("default"), ensure_ascii=False)
            if not partial:
                member["description"] = f"{member.get('description', '')}\n\nDefault: `{default}`.".strip()
