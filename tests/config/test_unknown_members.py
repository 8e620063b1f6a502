"""Unknown members of a body or a query are refused by their name, at every address of the API."""

import re
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart
from drf_spectacular.generators import SchemaGenerator
from rest_framework.serializers import BaseSerializer, ListSerializer, Serializer

from accounts.models import User
from chat.models import Conversation, Turn
from contrib.ag_ui.run_input import ForwardedProps
from core.api.fields import StrictSerializer
from files.models import File
from projects.models import Project
from projects.planner.api import ProgressSerializer
from tests.accounts.programs import Program

# Protocols of others, whose clients send members of their own.
OPEN = (ForwardedProps,)


def operations() -> list[tuple[str, str, Any]]:
    """Return path, method and view of all operations of the API, as its documentation has them."""
    generator = SchemaGenerator()  # type: ignore[no-untyped-call]
    generator._initialise_endpoints()  # type: ignore[no-untyped-call]
    return [
        (path, method, view)
        for path, _regex, method, view in generator._get_paths_and_endpoints()  # type: ignore[no-untyped-call]
        if path.startswith("/api/v1/")
    ]


def body_of(path: str, method: str, view: Any) -> Any:
    """Return the serializer of an operation's body, or None."""
    handler = getattr(view, getattr(view, "action", None) or method.lower(), None)
    schema = getattr(handler, "kwargs", {}).get("schema", type(view).schema)
    schema = schema() if isinstance(schema, type) else schema
    view.schema = schema
    schema.view, schema.path, schema.method = view, path, method
    return schema.get_request_serializer()


def loose(serializer: Any) -> list[str]:
    """Return the names of the serializers in a body that take members which they do not know."""
    if isinstance(serializer, dict):
        return [name for of_media_type in serializer.values() for name in loose(of_media_type)]
    if isinstance(serializer, type):
        serializer = serializer() if issubclass(serializer, BaseSerializer) else None
    if isinstance(serializer, ListSerializer):
        return loose(serializer.child)
    if not isinstance(serializer, Serializer) or isinstance(serializer, OPEN):
        return []
    inner = [name for field in serializer.fields.values() if not field.read_only for name in loose(field)]
    return inner if isinstance(serializer, StrictSerializer) else [type(serializer).__name__, *inner]


def test_every_body_of_the_api_refuses_members_that_it_does_not_know() -> None:
    bodies = {
        f"{method} {path}": body_of(path, method, view)
        for path, method, view in operations()
        if method in ("POST", "PUT", "PATCH")
    }
    assert sum(body is not None for body in bodies.values()) > 50
    assert loose(ProgressSerializer) == ["ProgressSerializer"]
    assert {place: names for place, body in bodies.items() if (names := loose(body))} == {}


def test_every_address_without_a_body_refuses_one_by_the_names_of_its_members(client: Client) -> None:
    """An empty form is none: Django's client and others send it with each POST."""
    wrong, count = [], 0
    last = "/api/v1/tokens/revoke-all/"  # it ends our own token
    for path, method, view in sorted(operations(), key=lambda each: each[0] == last):
        if method not in ("POST", "PUT", "PATCH") or body_of(path, method, view) is not None:
            continue
        count += 1
        url = re.sub(r"\{\w+\}", str(uuid4()), path)
        for options in ({"data": {"reson": "x"}}, {"data": {"reson": "x"}, "content_type": "application/json"}):
            refused = getattr(client, method.lower())(url, **options)
            if refused.json().get("code") != "unknown_member" or "“reson”" not in refused.json()["detail"]:
                wrong.append((method, path, options, refused.content))
        empty = [getattr(client, method.lower())(url), getattr(client, method.lower())(url, {}, "application/json")]
        wrong += [(method, path, {}, answer.content) for answer in empty if answer.status_code in (400, 415)]
    assert count > 20
    assert wrong == []


def test_every_form_refuses_parts_that_it_does_not_know(olga: User, client: Client) -> None:
    olga.is_superuser = olga.is_staff = True
    olga.save()
    forms = [
        (path, method)
        for path, method, view in operations()
        if method in ("POST", "PUT", "PATCH") and isinstance(body_of(path, method, view), dict)
    ]
    assert len(forms) > 2
    for path, method in forms:
        body = encode_multipart(BOUNDARY, {"file": SimpleUploadedFile("a.txt", b"words"), "nmae": "b.txt"})
        refused = client.generic(method, path, body, MULTIPART_CONTENT)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid"), path
        [error] = [each for each in refused.json()["errors"] if each["attr"] == "nmae"]
        assert "The fields are: file." in error["detail"]
    assert not File.objects.exists()


# Of lists and of reports, with a value that each of them takes.
QUERIES = {
    "conversations/": {"search": "harbour", "tag": "x", "origin": "api", "page_size": "5"},
    "tasks/": {"date": "2026-11-21", "page_size": "5"},
    "audit/": {"page_size": "5"},
    "search/": {"q": "harbour", "tag": "x"},
    "prompts/": {"of": "own"},
    "me/usage/": {"from": "2026-11-01", "to": "2026-11-21"},
    "files/": {"page_size": "5"},
}


def test_an_unknown_query_parameter_is_refused_with_the_names_that_exist(olga: User, client: Client) -> None:
    olga.is_superuser = olga.is_staff = True
    olga.save()
    for address, query in QUERIES.items():
        assert client.get(f"/api/v1/{address}", query).status_code == 200, address
        refused = client.get(f"/api/v1/{address}", {**query, "persona": "abc"})
        assert (refused.status_code, refused.json()["code"]) == (400, "unknown_parameter"), address
        assert all(name in refused.json()["detail"] for name in query), refused.json()
    place = Conversation.objects.create(owner=olga)
    for address, names in (
        (f"conversations/{place.pk}/export/", "kind"),
        ("export/", "conversation"),
        (f"turns/{place.pk}/events/", "after_seq"),
        (f"conversations/{place.pk}/", ""),
    ):
        refused = client.get(f"/api/v1/{address}", {"fromat": "markdown"})
        assert (refused.status_code, refused.json()["code"]) == (400, "unknown_parameter"), address
        assert names in refused.json()["detail"]


def test_every_list_of_the_api_names_its_query_parameters(client: Client) -> None:
    """Each operation without an id gets a parameter that no address has."""
    open_paths = []
    for path, method, _view in operations():
        if method == "GET" and "{" not in path and path not in ("/api/v1/schema/",):
            answer = client.get(path, {"no-such-parameter": "1"})
            if answer.status_code == 200:
                open_paths.append(path)
    assert open_paths == []


@pytest.mark.parametrize(
    "address",
    [
        "conversations/?origin=web",
        "prompts/?of=mine",
        "tasks/?level=epic",
        "summaries/?conversation=abc",
        "runs/?task=abc",
    ],
)
def test_a_value_that_no_filter_has_is_refused(client: Client, address: str) -> None:
    assert client.get(f"/api/v1/{address}").status_code in (400, 404)


@pytest.fixture
def olga(db: None) -> User:
    return User.objects.create_user("olga")


@pytest.fixture
def client(olga: User) -> Client:
    return Program(olga, "chat", "files", "projects", "tasks", "admin").client


def test_a_misspelt_member_is_refused_with_the_names_that_exist(olga: User, client: Client) -> None:
    place = Conversation.objects.create(owner=olga)
    project = Project.objects.create(owner=olga, name="Harbour")
    for method, address, body, names in (
        (
            "post",
            f"conversations/{place.pk}/turns/",
            {"text": "x", "file": ["y"]},
            ("text", "files", "models", "model"),
        ),
        ("post", f"conversations/{place.pk}/plan/", {"text": "x", "modle": "y"}, ("text", "model", "models")),
        ("post", "conversations/", {"titel": "x"}, ("title", "persona")),
        ("patch", f"conversations/{place.pk}/", {"titel": "x"}, ("title",)),
        ("post", "projects/", {"name": "x", "instruction": "y"}, ("name", "instructions")),
        ("patch", f"projects/{project.pk}/", {"instruction": "y"}, ("instructions",)),
        ("post", "tasks/", {"title": "x", "dat": "y"}, ("date",)),
        ("patch", "me/", {"timezon": "UTC"}, ("timezone", "language")),
    ):
        refused = getattr(client, method)(f"/api/v1/{address}", body, content_type="application/json")
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid"), address
        errors = {error["attr"]: error["detail"] for error in refused.json()["errors"]}
        [wrong] = set(body) - {"text", "name", "title"}
        assert all(name in errors[wrong] for name in names), errors
    assert not Turn.objects.exists()
