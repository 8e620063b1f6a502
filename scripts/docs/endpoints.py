"""The table of all endpoints in docs/api/endpoints.md, from the OpenAPI document."""

import re
from collections import defaultdict
from typing import Any

from drf_spectacular.generators import SchemaGenerator

METHODS = ("get", "post", "put", "patch", "delete")
VERBS = {"get": "Reads it.", "post": "Makes one.", "put": "Sets it.", "patch": "Changes it.", "delete": "Removes it."}
LISTS = "Lists them."
BASES = ("The base of", "The part of")  # docstrings of base classes, which say nothing of the endpoint


def paths() -> dict[str, dict[str, Any]]:
    """Return the operations of each path of the API, by method."""
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]  # theirs is untyped
    return {
        path: {method: operations[method] for method in METHODS if method in operations}
        for path, operations in sorted(schema["paths"].items())
    }


def table() -> str:
    """Return the generated part of docs/api/endpoints.md: a table for each first part of a path."""
    groups: dict[str, list[str]] = defaultdict(list)
    for path, operations in paths().items():
        descriptions = [operation.get("description", "") for operation in operations.values()]
        for method, operation in operations.items():
            description = operation.get("description", "")
            shared = descriptions.count(description) > 1 or description.startswith(BASES)
            row = f"| `{method.upper()} {path}` | {_sentence(path, method, '' if shared else description)} |"
            groups[path.removeprefix("/api/v1/").split("/")[0]].append(row)
    return "\n\n".join(
        "\n".join([f"## {name}", "", "| endpoint | what it does |", "|---|---|", *rows])
        for name, rows in sorted(groups.items())
    )


def _sentence(path: str, method: str, description: str) -> str:
    """Return the first sentence of a description, or what the method does where the view has none of its own."""
    first = re.split(r"(?<=[.!?])\s", " ".join(description.split()), maxsplit=1)[0]
    if not first:
        return LISTS if method == "get" and path.endswith("s/") else VERBS[method]
    return first.replace("|", "\\|")
