"""OpenAPI documents: what is read of them, what is refused, and the requests that calls of their operations make."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from core.net.addresses import HostLists
from core.net.outgoing import noting
from llm.tools import openapi_calls
from llm.tools.mcp import build_operation_tools
from llm.tools.openapi import DocumentRefused, Operation, read_document, read_with_operations, server_address
from llm.tools.servers import ToolServerConfig
from llm.types.tools import ToolOutput, run_tool
from tests.llm.pet_shop import DOCUMENT, PNG, PetShop, pet_shop

READ = read_with_operations(json.dumps(DOCUMENT).encode())
OPERATIONS = {each.key: each for each in READ.operations}


def refusal(content: bytes | str | Mapping[str, Any]) -> str:
    if isinstance(content, Mapping):
        content = json.dumps(content)
    with pytest.raises(DocumentRefused) as refused:
        read_with_operations(content.encode() if isinstance(content, str) else content)
    return refused.value.sentence.english


def properties(key: str) -> Mapping[str, Any]:
    parameters = OPERATIONS[key].parameters
    assert parameters is not None
    jsonschema.Draft202012Validator.check_schema(parameters)
    return dict(parameters["properties"])


def test_operations_become_tools_with_the_arguments_of_all_places() -> None:
    assert READ.title == "Pet shop 1.2" and READ.server == "https://eu.pets.example/v1"
    listing = OPERATIONS["GET /pets"]
    assert (listing.name, listing.description, listing.safe) == ("listPets", "Lists the pets.", True)
    arguments = properties("GET /pets")
    assert list(arguments) == ["limit", "tags", "filter_age", "near", "X-Trace"]  # not the header of the secret
    assert arguments["limit"]["description"] == "At most so many."
    assert OPERATIONS["GET /pets/{petId}"].name == "get_pets_petId"
    assert OPERATIONS["DELETE /pets/{petId}"].parameters["required"] == ["petId"]  # type: ignore[index]
    assert not OPERATIONS["DELETE /pets/{petId}"].safe


def test_references_are_resolved_within_the_document_even_if_they_lead_in_circles() -> None:
    pet = OPERATIONS["POST /pets"]
    assert pet.parameters is not None
    assert properties("POST /pets")["body"]["$ref"] == "#/$defs/Pet"
    schema = pet.parameters["$defs"]["Pet"]
    assert "id" not in schema["properties"] and schema["required"] == ["name"]  # only answers have it
    assert schema["properties"]["example"] == {"type": "integer", "exclusiveMinimum": 0}  # a name, not a keyword
    assert "example" not in schema["properties"]["name"]
    validator = jsonschema.Draft202012Validator(pet.parameters)
    assert validator.is_valid({"body": {"name": "Rex", "tag": None, "parent": {"name": "Ada"}}})
    assert not validator.is_valid({"body": {"name": "Rex", "parent": {"tag": "x"}}})


def test_an_operation_that_cannot_be_a_tool_says_why_and_the_others_stay() -> None:
    problems = {key: each.problem.english for key, each in OPERATIONS.items() if each.problem is not None}
    assert set(problems) == {"POST /upload", "GET /elsewhere", "GET /other"}
    assert "application/octet-stream" in problems["POST /upload"]
    assert "its own server" in problems["GET /elsewhere"]
    assert "common.yaml#/A" in problems["GET /other"] and "in one file" in problems["GET /other"]


def test_yaml_is_read_like_json() -> None:
    text = yaml.safe_dump(DOCUMENT)
    assert read_document(text.encode()) == json.loads(json.dumps(DOCUMENT))
    day = read_document(b"openapi: 3.1.0\ninfo: {version: 2026-01-01}\npaths: {/a: {get: {responses: {200: {}}}}}")
    assert day["info"]["version"] == "2026-01-01" and "200" in day["paths"]["/a"]["get"]["responses"]


def test_refused_documents_get_a_sentence_that_says_what_to_do() -> None:
    assert "Convert it to OpenAPI 3" in refusal({"swagger": "2.0", "paths": {"/a": {}}})
    assert "its “openapi” is 4.0.0" in refusal({"openapi": "4.0.0", "paths": {"/a": {}}})
    assert "is not an object" in refusal("[1]") and "is not an object" in refusal("")
    assert "web page" in refusal("<!doctype html><p>Our API")
    assert "line 2" in refusal("a: 1\nb: }\nc: 1")
    assert "UTF-8" in refusal(b"\xff\xfe\x00")
    assert "no “paths”" in refusal({"openapi": "3.0.0"})
    assert "no operations" in refusal({"openapi": "3.0.0", "paths": {"/a": {"x-y": 1}}})
    assert "merge keys" in refusal("a: &a {b: 1}\nc: {<<: *a}")
    assert "nested deeper" in refusal("[" * 100_000) and "nested deeper" in refusal('{"a":' * 50_000)
    assert "nested deeper" in refusal("a: &a [*a]")
    assert "Split it" in refusal(b" " * 16_000_001)
    reference = {"openapi": "3.0.0", "paths": {"/a": {"$ref": "paths.yaml#/a"}}}
    assert "paths.yaml#/a" in refusal(reference)


def test_aliases_that_multiply_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm.tools.openapi.MAX_VALUES", 10_000)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 30)]
    assert "more than 10,000 values" in refusal("\n".join(lines))


def test_addresses_of_servers_are_resolved() -> None:
    assert (
        server_address({"servers": [{"url": "/v2"}]}, "https://a.example/docs/openapi.json") == "https://a.example/v2"
    )
    assert server_address({}, "https://a.example/openapi.json") == "https://a.example"
    assert server_address({"servers": [{"url": "/v2"}]}) == ""
    assert server_address({"servers": "x"}) == ""


KEYWORDS = (
    *("$ref", "type", "properties", "required", "items", "schema", "name", "in", "style", "parameters"),
    *("requestBody", "content", "application/json", "get", "servers", "url", "nullable"),
)
VALUES = st.none() | st.booleans() | st.text(max_size=3) | st.sampled_from(["query", "path", "#/paths", "object"])
ITEMS = st.recursive(VALUES, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYWORDS), inner))


@given(ITEMS)
def test_no_operation_breaks_the_others(item: Any) -> None:
    paths = {"/bad": {"get": item, "post": {"parameters": item}, "put": {"requestBody": item}}, "/good": {"get": {}}}
    operations = {
        each.key: each
        for each in read_with_operations(json.dumps({"openapi": "3.1.0", "paths": paths}).encode()).operations
    }
    assert operations["GET /good"].problem is None


# Calls


@pytest.fixture
def shop() -> Iterator[PetShop]:
    with pet_shop() as running:
        yield running


def server_of(shop: PetShop, **changes: Any) -> ToolServerConfig:
    values: dict[str, Any] = {"url": shop.url, "secrets": {"X-Key": "secret"}, "own_network": True, "operations": ()}
    return ToolServerConfig("pets", **(values | changes))


def call(server: ToolServerConfig, key: str, **arguments: Any) -> ToolOutput:
    [tool] = build_operation_tools(server, [OPERATIONS[key]], ())
    return asyncio.run(run_tool(tool, arguments))


def test_a_call_sends_each_argument_to_its_place_with_the_secret(shop: PetShop) -> None:
    with noting() as sent:
        output = call(
            server_of(shop), "GET /pets",
            **{"limit": 5, "tags": ["a b", "c"], "filter_age": 3, "near": {"lat": 1.5}, "X-Trace": "t1"},
        )  # fmt: skip
    assert json.loads(output.text) == {"path": "/v1/pets"} and not output.error and output.full_text == output.text
    [request] = shop.requests
    assert request.line == "GET /v1/pets?limit=5&tags=a%20b&tags=c&filter%5Bage%5D=3&near%5Blat%5D=1.5"
    assert request.headers["X-Key"] == "secret" and request.headers["X-Trace"] == "t1"
    assert sent == [{"host": "127.0.0.1", "what": f"GET {shop.url}{request.line.removeprefix('GET /v1')}"}]
    assert "secret" not in json.dumps(sent)


def test_bodies_are_sent_as_json_or_as_a_form(shop: PetShop) -> None:
    with noting() as sent:
        call(server_of(shop), "POST /pets", body={"name": "Zoë"})
    call(server_of(shop), "POST /login", body={"user": "a&b"})
    pets, login = shop.requests
    assert json.loads(pets.body) == {"name": "Zoë"} and pets.headers["Content-Type"] == "application/json"
    assert login.body == "user=a%26b" and login.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert sent[0]["what"].endswith('\n{"name": "Zoë"}')
    with noting() as sent:
        call(server_of(shop, reaches_out=False), "POST /login", body={"user": "a"})
    assert sent == []


def test_arguments_cannot_lead_elsewhere(shop: PetShop) -> None:
    call(server_of(shop), "GET /pets/{petId}", petId="../../admin?x=1#y")
    assert shop.requests[0].line == "GET /v1/pets/..%2F..%2Fadmin%3Fx%3D1%23y"
    for bad in ("..", ".", ""):
        assert "must not be empty" in call(server_of(shop), "GET /pets/{petId}", petId=bad).text
    assert "one line" in call(server_of(shop), "GET /pets", **{"X-Trace": "a\r\nX-Key: other"}).text
    assert "is missing" in call(server_of(shop), "GET /pets/{petId}").text
    assert (
        "There is no argument “id”. The arguments are: petId." in call(server_of(shop), "GET /pets/{petId}", id=1).text
    )
    assert len(shop.requests) == 1


def test_private_addresses_and_denied_hosts_are_not_called(shop: PetShop) -> None:
    output = call(server_of(shop, own_network=False), "GET /pets")
    assert output.error and "not on the public internet" in output.text
    output = call(server_of(shop, hosts=HostLists(denied=frozenset({"127.0.0.1"}))), "GET /pets")
    assert output.error and "denies the host" in output.text
    link_local = call(server_of(shop, url="http://169.254.169.254/v1"), "GET /pets")
    assert link_local.error and "not on the public internet" in link_local.text
    assert shop.requests == []


def test_redirects_and_errors_are_told_to_the_model(shop: PetShop) -> None:
    shop.answers["/v1/pets"] = (302, "text/plain", b"")
    shop.headers["Location"] = "http://169.254.169.254/"
    output = call(server_of(shop), "GET /pets")
    assert output.error and "leads to http://169.254.169.254/" in output.text and len(shop.requests) == 1
    shop.answers["/v1/pets"] = (404, "application/problem+json", b'{"title": "No pets"}')
    output = call(server_of(shop), "GET /pets")
    assert output.error and output.text == 'The server answered with status 404.\n{"title": "No pets"}'
    shop.answers["/v1/pets"] = (204, "text/plain", b"")
    assert call(server_of(shop), "GET /pets").text == "The server answered with status 204 and nothing else."
    shop.headers["Content-Encoding"] = "br"
    shop.answers["/v1/pets"] = (200, "text/plain", b"x")
    assert "was not requested" in call(server_of(shop), "GET /pets").text


def test_a_server_that_is_away_is_an_output() -> None:
    server = ToolServerConfig("pets", url="http://127.0.0.1:9/v1", own_network=True, operations=())
    output = call(server, "GET /pets")
    assert output.error and "cannot be reached" in output.text


def test_files_of_answers_become_files(shop: PetShop) -> None:
    shop.answers["/v1/pets/7/picture"] = (200, "image/png", PNG)
    output = call(server_of(shop), "GET /pets/{petId}/picture", petId="7")
    [file] = output.tool_files
    assert file.image and file.content == PNG and file.name == "picture.png" and "picture.png" in output.text
    shop.answers["/v1/pets/7/picture"] = (200, "application/pdf", b"%PDF-1.4 ...")
    [file] = call(server_of(shop), "GET /pets/{petId}/picture", petId="7").tool_files
    assert not file.image and file.name == "picture.pdf"


def test_long_answers_are_cut_and_say_so(shop: PetShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openapi_calls, "MAX_BYTES", 1_000)
    shop.answers["/v1/pets"] = (200, "text/plain; charset=iso-8859-1", "é".encode("latin-1") * 5_000)
    output = call(server_of(shop), "GET /pets")
    assert output.partial and output.text.startswith("é" * 1_000) and output.text.endswith("was not read. …]")


def test_only_what_changes_something_asks() -> None:
    server = ToolServerConfig("pets", url="https://pets.example", operations=())
    chosen: list[Operation] = [OPERATIONS[key] for key in ("GET /pets", "POST /pets", "DELETE /pets/{petId}")]
    asks = {tool.name_at_server: tool.asks for tool in build_operation_tools(server, chosen, ["POST /pets"])}
    assert asks == {"listPets": False, "addPet": False, "removePet": True}
    always = ToolServerConfig("pets", url="https://pets.example", operations=(), approval_required=True)
    assert all(tool.asks for tool in build_operation_tools(always, chosen, ["POST /pets"]))
