"""First visits: the sign-in page, a greeting, personas, suggestions and a sample project."""

import re

import pytest
from django.test import Client

from accounts.models import User
from core.errors import ProductError
from files.models import File
from personas.models import Persona
from projects.models import Project
from tests.conftest import PASSWORD
from workspace import services as workspace
from workspace.models.settings import SUGGESTIONS, workspace_at

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("workspace")]


@pytest.fixture
def nina(client: Client) -> User:
    person = User.objects.create_user("nina", first_name="Nina", password=PASSWORD)
    client.force_login(person)
    return person


def home_of(client: Client, path: str = "/") -> str:
    return client.get(path).content.decode()


def suggestions_in(page: str) -> list[str]:
    return re.findall(r'data-starter="([^"]*)"', page)


def test_the_first_page_greets_and_offers_suggestions_personas_and_a_sample(client: Client, nina: User) -> None:
    Persona.objects.create(name="Editor", description="Makes a text clearer.", visibility="workspace")
    page = home_of(client)
    assert re.search(r"Welcome to Glasshouse, Nina\.", page)
    assert suggestions_in(page) == [str(each) for each in SUGGESTIONS]
    assert re.search(r'class="face face-\w+" aria-hidden="true">E<', page) and "Makes a text clearer." in page
    assert "Open a sample project" in page
    for path in ("/?temporary=yes", f"/?persona={Persona.objects.get(name='Editor').pk}"):
        assert "Welcome to" not in home_of(client, path)


def test_administrators_write_the_suggestions_and_what_the_workspace_is_for(client: Client, nina: User) -> None:
    fields = {"about": "For the law firm.", "suggestions": " Which clause limits the fee?\r\n\r\nDraft a letter. "}
    workspace.change_settings(user=None, fields=fields)
    assert workspace_at().suggestions == "Which clause limits the fee?\nDraft a letter."
    page = home_of(client)
    assert suggestions_in(page) == ["Which clause limits the fee?", "Draft a letter."]
    assert "For the law firm." in page and "For the law firm." in home_of(Client(), "/login/")


@pytest.mark.parametrize("text", ["1\n2\n3\n4\n5", "x" * 201])
def test_more_or_longer_suggestions_are_refused(text: str) -> None:
    with pytest.raises(ProductError) as caught:
        workspace.change_settings(user=None, fields={"suggestions": text})
    assert caught.value.code == "invalid_setting"


def test_everybody_can_have_the_sample_project_once(client: Client, nina: User) -> None:
    opened = client.post("/projects/sample/")
    project = Project.objects.get(owner=nina)
    assert opened["Location"] == f"/projects/{project.pk}/"
    assert (project.persona and project.persona.owner, project.entries.count()) == (nina, 3)
    assert client.post("/projects/sample/")["Location"] == opened["Location"]
    assert File.objects.filter(owner=nina).count() == 3
    page = home_of(client)
    assert "A look at Glasshouse" in page and "Open a sample project" not in page
    assert client.get("/projects/sample/").status_code == 405


def test_after_a_wrong_password_the_cursor_is_in_the_password(nina: User) -> None:
    def focused(page: str) -> list[str]:
        return re.findall(r'<input id="(\w+)"[^>]*\sautofocus', page)

    assert focused(home_of(Client(), "/login/")) == ["id_username"]
    refused = Client().post("/login/", {"username": "nina", "password": "wrong"}).content.decode()
    assert focused(refused) == ["id_password"] and 'data-reveal="id_password"' in refused
