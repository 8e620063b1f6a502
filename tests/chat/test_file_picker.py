"""Files that the sheet at the composer lists, and those that a person can choose."""

from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from files.models import File
from llm.models import Model, Provider
from personas.models import BudgetProfile, Persona
from projects.models import Membership, Project, ProjectFile

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return User.objects.create_user("olga")


@pytest.fixture
def model() -> Model:
    provider = Provider.objects.create(name="Anyone", base_url="http://127.0.0.1:9/v1")
    return Model.objects.create(provider=provider, name="small", context_window=4_000, default=True)


@pytest.fixture
def client(owner: User, model: Model) -> Client:
    client = Client()
    client.force_login(owner)
    return client


def a_file(owner: User, name: str, tokens: int | None = 10, **fields: Any) -> File:
    counted = {} if tokens is None else {"o200k_base": tokens}
    fields = {"status": "ready", **fields}
    return File.objects.create(owner=owner, name=name, size=1, sha256="0" * 64, tokens=counted, **fields)


def choices(client: Client, url: str = "/pick/", **fields: Any) -> dict[str, str]:
    """Return by name, in order, why a listed file cannot be chosen, or "" if it can."""
    response = client.get(url, fields)
    assert response.status_code == 200, response.content
    return {choice.file.name: choice.why_not for choice in response.context["choices"]}


def test_a_stranger_s_file_is_never_listed(client: Client, owner: User) -> None:
    stranger = User.objects.create_user("sam")
    theirs = a_file(stranger, "secret.txt")
    shared, other = a_file(stranger, "shared.txt"), a_file(stranger, "other.txt")
    project = Project.objects.create(owner=stranger, name="Ours")
    ProjectFile.objects.create(project=project, file=shared)
    Membership.objects.create(project=project, user=owner)
    closed = Project.objects.create(owner=stranger, name="Theirs")
    ProjectFile.objects.create(project=closed, file=other)
    a_file(owner, "mine.txt")
    assert list(choices(client)) == ["mine.txt", "shared.txt"]
    assert choices(client, q="secret") == choices(client, q="other") == {}
    assert choices(client, files=[str(theirs.pk)]) == choices(client)
    page = client.get("/", {"file": [str(theirs.pk), str(shared.pk)]}).content.decode()
    assert "secret.txt" not in page and "shared.txt" in page


def test_another_person_s_conversation_and_project_give_no_line(client: Client) -> None:
    stranger = User.objects.create_user("sam")
    project = Project.objects.create(owner=stranger, name="Theirs")
    assert client.get("/pick/", {"project": str(project.pk)}).status_code == 404
    assert client.get("/pick/", {"files": "nothing"}).status_code == 404
    assert client.get(f"/c/{project.pk}/pick/").status_code == 404


def test_what_is_not_counted_blocks(client: Client, owner: User) -> None:
    a_file(owner, "ready.txt")
    unread = a_file(owner, "unread.txt", None, status="processing")
    a_file(owner, "failed.txt", None, status="failed")
    assert choices(client) == {
        "failed.txt": "It could not be read.",
        "unread.txt": "Its length is not known yet.",
        "ready.txt": "",
    }
    assert choices(client, unread=str(unread.pk))["ready.txt"] == "Wait until the files chosen so far are read."


def test_the_line_is_that_of_the_chosen_model_and_persona(client: Client, owner: User, model: Model) -> None:
    a_file(owner, "long.txt", 3_000)
    assert choices(client)["long.txt"].startswith("Too long by ")
    large = Model.objects.create(provider=model.provider, name="large", context_window=100_000)
    assert choices(client, model=str(large.pk)) == {"long.txt": ""}
    profile = BudgetProfile.objects.create(name="narrow", window=4_000)
    persona = Persona.objects.create(owner=owner, name="Narrow", budget_profile=profile)
    assert choices(client, model=str(large.pk), persona=str(persona.pk)) == choices(client)


def test_an_image_takes_nothing_of_the_document_budget(client: Client, owner: User) -> None:
    a_file(owner, "picture.png", 90_000, width=10, height=10)
    assert choices(client) == {"picture.png": ""}


def test_what_only_the_search_can_use_cannot_be_chosen_even_below_the_line(client: Client, owner: User) -> None:
    a_file(owner, "long.txt", 100, status="too_long")
    assert choices(client) == {"long.txt": "Too long to send whole."}


@pytest.mark.parametrize("query", ["a\0b", "%", "' OR 1=1", "  "])
def test_any_query_is_answered(client: Client, owner: User, query: str) -> None:
    a_file(owner, "ready.txt")
    assert choices(client, q=query) == ({} if query.strip() else {"ready.txt": ""})
