"""Operations of an OpenAPI document as tools: an admin chooses them, and a model calls them."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from accounts.models import User
from llm.models import OpenApiDocument, ToolServer
from personas.models import Persona
from tests.application import Application
from tests.chat.test_tool_results import ANSWER, Turns, calls, model_of, place_of
from tests.conftest import Person
from tests.llm.pet_shop import DOCUMENT, PNG, PetShop, pet_shop

__all__ = ["model_of"]  # a fixture

ADD = "admin:llm_toolserver_add"


@pytest.fixture
def shop() -> Iterator[PetShop]:
    with pet_shop() as running:
        yield running


def admin() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser(f"a{uuid4().hex[:8]}"))
    return client


def upload(document: dict[str, Any] | bytes) -> SimpleUploadedFile:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return SimpleUploadedFile("openapi.json", content, "application/json")


def form(name: str, **changes: Any) -> dict[str, Any]:
    fields = {"name": name, "kind": "openapi", "access": "header", "base_url": "", "command": ""}
    return (
        fields
        | {"secret_name": "X-Key", "new_api_key": "", "reaches_out": "on", "enabled": "on", "document_address": ""}
        | changes
    )


def change_url(row: ToolServer) -> str:
    return reverse("admin:llm_toolserver_change", args=[row.pk])


def server_with(shop: PetShop, *operations: str, **changes: Any) -> ToolServer:
    """Set a server up on the pages of the admin, as an administrator does."""
    client, name = admin(), f"p{uuid4().hex[:8]}"
    address = {"base_url": shop.url, "own_network": "on", "new_api_key": "s3cret"}
    response = client.post(reverse(ADD), form(name, document_file=upload(DOCUMENT), **address))
    row = ToolServer.objects.get(name=name)
    assert response.headers["Location"] == change_url(row) and row.tools == []
    chosen = address | {"new_api_key": "", "operations": list(operations)} | changes
    assert client.post(change_url(row), form(name, **chosen)).status_code == 302
    row.refresh_from_db()
    return row


@pytest.mark.django_db
def test_an_admin_uploads_a_document_and_chooses_operations(shop: PetShop) -> None:
    row = server_with(shop, "GET /pets", "POST /pets", "DELETE /pets/{petId}", unasked=["POST /pets"])
    assert [each["tool"] for each in row.tools or ()] == ["listPets", "addPet", "removePet"]
    assert [each["operation"]["asks"] for each in row.tools or ()] == [False, False, True]
    page = admin().get(change_url(row)).content.decode()
    assert "Pet shop 1.2" in page and "9 operations" in page
    assert 'name="operations" value="GET /pets" checked' in " ".join(page.replace('class="tick"', "").split())
    assert "POST /upload" in page and "a body in a format that a model cannot write" in page
    unasked = [line for line in page.split("<label>") if 'name="unasked"' in line]
    assert len(unasked) == 3 and not any("GET " in line for line in unasked)

    smaller = DOCUMENT | {"paths": {"/pets": DOCUMENT["paths"]["/pets"]}}
    changed = {"base_url": shop.url, "own_network": "on", "operations": row.operations, "unasked": row.unasked}
    admin().post(change_url(row), form(row.name, document_file=upload(smaller), **changed))
    row.refresh_from_db()
    assert row.operations == ["GET /pets", "POST /pets"] and [each["tool"] for each in row.tools or ()] == [
        "listPets",
        "addPet",
    ]
    admin().post(change_url(row), form(row.name, kind="http", base_url=shop.url))
    row.refresh_from_db()
    assert row.operations == [] and row.tools is None and not OpenApiDocument.objects.filter(server=row).exists()


@pytest.mark.django_db
def test_the_first_server_of_the_document_is_its_address() -> None:
    name = f"p{uuid4().hex[:8]}"
    admin().post(reverse(ADD), form(name, document_file=upload(DOCUMENT)))
    assert ToolServer.objects.get(name=name).base_url == "https://eu.pets.example/v1"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "Upload the OpenAPI document of this API, or enter its address."),
        ({"document_file": upload(b"<html>")}, "This is a web page or XML."),
        ({"document_file": upload({"swagger": "2.0"})}, "Convert it to OpenAPI 3"),
        ({"document_address": "http://127.0.0.1/openapi.json"}, "is not on the public internet"),
        ({"document_address": "no address"}, "Only URLs that begin with http"),
        ({"document_file": upload(DOCUMENT | {"servers": []})}, "Enter the URL of a server"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    response = admin().post(reverse(ADD), form("pets", **changes))
    assert response.status_code == 200 and sentence in response.content.decode()
    assert not ToolServer.objects.filter(name="pets").exists()


def test_a_model_calls_operations_and_the_report_says_what_left(
    application: Application, committed: None, person: Person, shop: PetShop, model_of: Any
) -> None:
    row = server_with(shop, "GET /pets", "GET /pets/{petId}/picture")
    shop.answers["/v1/pets/7/picture"] = (200, "image/png", PNG)
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(64_000))
    planned = turns.plan()
    names = [f"{row.name}__listPets", f"{row.name}__picture"]
    assert planned["tools"] == ["read_result", *names]
    turn = turns.ask(calls((names[0], {"limit": 3}), (names[1], {"petId": "7"})), ANSWER)
    assert turns.results(1)[0] == '{"path": "/v1/pets"}'
    assert "picture.png" in turns.results(1)[1]
    report = turns.report(turn)
    assert report["tools"] == planned["tools"]
    assert [each["what"] for each in report["outgoing"]] == [
        f"GET {shop.url}/pets?limit=3",
        f"GET {shop.url}/pets/7/picture",
    ]
    assert all(request.headers["X-Key"] == "s3cret" for request in shop.requests)
    assert any(part.get("files") for part in turn["parts"] if part["type"] == "tool_result")
    row.delete()


def test_an_operation_that_changes_something_waits_for_its_person(
    application: Application, committed: None, person: Person, shop: PetShop, model_of: Any
) -> None:
    row = server_with(shop, "GET /pets", "POST /pets")
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(64_000))
    assert turns.plan()["tools_asking"] == [f"{row.name}__addPet"]
    call = {"tool_calls": [{"name": f"{row.name}__addPet", "arguments": {"body": {"name": "Rex"}}}]}
    script = {"steps": [call, {"text": "Done."}]}
    turn = person.caller.ask("Add Rex", script, turns.place, models=[str(turns.model.pk)])
    for event in person.caller.events(turn["id"]):
        if event["type"] == "TOOL_CALL_APPROVAL" and event["state"] == "waiting":
            assert shop.requests == []
            person.caller.post(f"turns/{turn['id']}/approvals/", {"call": event["call"], "allow": True}, expect=202)
            break
    assert person.caller.ended(turn["id"])["text"] == "Done."
    assert [(each.line, each.body) for each in shop.requests] == [("POST /v1/pets", '{"name": "Rex"}')]
    row.delete()


def test_a_persona_may_name_single_operations(shop: PetShop, person: Person) -> None:
    row = server_with(shop, "GET /pets", "POST /pets")
    body = {"name": "Keeper", "instructions": "Help.", "tools": [f"{row.name}__listPets"]}
    persona = person.caller.post("personas/", body, expect=201)
    assert Persona.objects.get(pk=persona["id"]).tools == body["tools"]
    refused = person.caller.post("personas/", body | {"tools": [f"{row.name}__picture"]}, expect=400)
    assert f"{row.name}__picture" in json.dumps(refused)
