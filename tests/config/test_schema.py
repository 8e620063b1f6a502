"""The API's description: valid, true in its examples, and readable without any other site."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from ag_ui.core import RunStartedEvent
from ag_ui.encoder import EventEncoder
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from config.api_docs.schema import EXAMPLES
from files.pages import UNREAD_TYPE
from readers.api import media_types

ADDRESS = re.compile(r"""(?:src|href|url)\s*[=:]\s*["']([^"']+)["']""")
LOADED = re.compile(r"""(?:src|href)="([^"]+)\"""")


@pytest.fixture(scope="module")
def description() -> Any:
    return SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]  # theirs is untyped


def operations(description: Any) -> dict[str, Any]:
    return {
        operation["operationId"]: operation for path in description["paths"].values() for operation in path.values()
    }


def wrong_with(description: Any, schema: Any, value: Any) -> list[str]:
    """Return the differences between a value and a schema of the description."""
    resource = Resource.from_contents(description, default_specification=DRAFT202012)
    registry: Any = Registry().with_resource("urn:api", resource)
    absolute = {"$ref": "urn:api" + schema["$ref"]} if "$ref" in schema else schema
    validator = Draft202012Validator(absolute, registry=registry, format_checker=FormatChecker())
    return [error.message for error in validator.iter_errors(value)]


def test_the_apis_description_is_valid_without_warnings(tmp_path: Path) -> None:
    call_command("spectacular", validate=True, fail_on_warn=True, file=str(tmp_path / "schema.yml"))


def test_it_is_openapi_3_1_and_every_operation_says_how_it_refuses(description: Any) -> None:
    assert description["openapi"] == "3.1.0"
    problem = {"$ref": "#/components/schemas/Problem"}
    refused = description["components"]["responses"]["Refused"]["content"]
    assert refused == {"application/problem+json": {"schema": problem}}
    for name, operation in operations(description).items():
        assert operation["responses"]["4XX"] == {"$ref": "#/components/responses/Refused"}, name


def test_streams_are_described_message_by_message(description: Any) -> None:
    shapes = {
        (path, status): response["content"]["text/event-stream"]["schema"]["$ref"].rpartition("/")[2]
        for path, described in description["paths"].items()
        for operation in described.values()
        for status, response in operation["responses"].items()
        if "text/event-stream" in response.get("content", {})
    }
    assert shapes.pop(("/api/v1/ag-ui/", "200")) == "AgUiEventMessage"
    assert len(shapes) > 2 and set(shapes.values()) == {"TurnEventMessage"}
    for name in ("TurnEvent", "AgUiEvent"):
        data = description["components"]["schemas"][f"{name}Message"]["properties"]["data"]
        assert data["contentSchema"] == {"$ref": f"#/components/schemas/{name}"}


def test_ag_uis_events_are_as_its_package_writes_them(description: Any) -> None:
    started = RunStartedEvent(thread_id="a", run_id="b")
    written = json.loads(EventEncoder().encode(started).removeprefix("data: "))
    event = {"$ref": "#/components/schemas/AgUiEvent"}
    assert wrong_with(description, event, written) == []
    assert wrong_with(description, event, {**written, "type": "NO_SUCH_EVENT"})


def test_a_files_content_has_the_media_types_that_there_are(description: Any) -> None:
    content = operations(description)["files_content_retrieve"]["responses"]["200"]["content"]
    assert {"application/pdf", "image/png", "text/plain", "text/csv", "application/octet-stream"} <= set(content)
    assert set(content) == {*media_types.KNOWN_TYPES, UNREAD_TYPE}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_are_as_the_description_says(description: Any, name: str) -> None:
    operation = operations(description)[name]
    body = operation["requestBody"]["content"]["application/json"]
    assert not wrong_with(description, body["schema"], body["example"])
    _, status, _ = EXAMPLES[name]
    if status:
        answer = operation["responses"][status]["content"]["application/json"]
        assert not wrong_with(description, answer["schema"], answer["example"])


def test_an_example_that_is_not_as_described_would_be_noticed(description: Any) -> None:
    body = operations(description)["conversations_create"]["requestBody"]["content"]["application/json"]
    assert wrong_with(description, body["schema"], {"title": 3})


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects within a JSON value."""
    if isinstance(schema, dict):
        yield schema
    children = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for child in children:
        yield from nodes(child)


def test_every_object_has_a_name_for_generated_clients(description: Any) -> None:
    components = description["components"]["schemas"]
    named = [id(schema) for schema in components.values()]
    described = [node for node in nodes(description) if node.get("type") == "object" and "properties" in node]
    inline = [node for node in described if id(node) not in named]
    titles = [node.get("title") for node in inline]
    assert len(titles) > 30 and None not in titles and len(set(titles)) == len(titles)
    assert not components.keys() & set(titles)
    assert {f"TurnEvent{name}" for name in ("RunStarted", "ToolCallResult", "CitationCheck", "Snapshot")} <= set(titles)


def test_titles_are_the_same_however_often_it_is_described(description: Any) -> None:
    again: Any = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]  # as above
    assert again["components"]["schemas"] == description["components"]["schemas"]


def test_no_member_of_a_request_is_required_by_its_default(description: Any) -> None:
    requests = {name: schema for name, schema in description["components"]["schemas"].items() if "Request" in name}
    members = [member for schema in requests.values() for member in schema.get("properties", {}).values()]
    assert len(members) > 50 and not [member for member in members if "default" in member]
    temporary = requests["ConversationRequest"]["properties"]["temporary"]
    assert "Default: `false`." in temporary["description"]
    assert "Default" not in requests["PatchedConversationRequest"]["properties"]["temporary"].get("description", "")


@pytest.mark.django_db
def test_the_documentation_needs_no_other_site(client: Client) -> None:
    page = client.get("/api/docs/").content.decode()
    loaded = LOADED.findall(page)
    assert any("swagger-ui" in address for address in loaded)
    for address in {*ADDRESS.findall(page), *loaded}:
        assert not urlsplit(address).netloc, address
        if address in loaded:
            assert finders.find(address.removeprefix("/static/")), address
    assert "//cdn" not in page


# An id, a moment, a number or a file: the others are short, and the server bounds the last by its bytes.
BOUNDED_FORMATS = {"uuid", "date", "date-time", "decimal", "binary"}


def lacks_bound(schema: Any) -> bool:
    """Return whether a text, a list or an object of any members may be of any length."""
    kinds = schema["type"] if isinstance(schema.get("type"), list) else [schema.get("type")]
    short = {"enum", "const", "maxLength"} & set(schema) or schema.get("format") in BOUNDED_FORMATS
    return (
        ("string" in kinds and not short)
        or ("array" in kinds and "maxItems" not in schema)
        or (isinstance(schema.get("additionalProperties"), dict) and "maxProperties" not in schema)
    )


def below(schema: Any, where: str) -> Iterator[tuple[Any, str]]:
    """Yield the schemas that stand in this one, each with its place."""
    yield from ((one, where) for kind in ("oneOf", "anyOf", "allOf") for one in schema.get(kind, ()))
    yield from (
        (schema[name], f"{where}[]") for name in ("items", "additionalProperties") if isinstance(schema.get(name), dict)
    )
    yield from ((member, f"{where}.{name}") for name, member in schema.get("properties", {}).items())


def unbounded(description: Any, schema: Any, where: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the places in a schema of a request whose values may be of any length."""
    if "$ref" in schema:
        where = schema["$ref"].rpartition("/")[2]
        if where in above:
            return
        schema, above = description["components"]["schemas"][where], (*above, where)
    if schema.get("readOnly"):
        return
    if lacks_bound(schema):
        yield where
    for one, place in below(schema, where):
        yield from unbounded(description, one, place, above)


def test_every_text_and_list_of_a_request_has_a_bound(description: Any) -> None:
    """Texts in an address or a header are bounded by the size of a request's head, 16 kB."""
    wrong = {
        place
        for name, operation in operations(description).items()
        for content in operation.get("requestBody", {}).get("content", {}).values()
        for place in unbounded(description, content["schema"], name)
    }
    assert not wrong
