"""Who gets in where. The tests walk the whole URLconf, so a new address is covered when it is added."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib.auth.models import Group
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model as Row
from django.test import Client

from accounts.models import ApiToken, User
from accounts.services import create_token
from chat.models import Conversation, Message, Turn
from files.models import Embedder, File
from llm.models import Model, Provider, ToolServer, WebSearch
from personas.models import BudgetProfile, Persona, Reminder
from personas.services import save_system_prompt
from projects.models import Membership, Project, ProjectFile
from tests.config.addresses import Address, addresses

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# What anybody may see: signing in, what load balancers ask, and the description of the API, which holds no data.
PUBLIC = {"/login/", "/admin/login/", "/livez", "/readyz", "/api/v1/schema/", "/api/docs/"}
SIGNING_OUT = {"/logout/", "/admin/logout/"}
PRIVATE = "words-that-only-their-owner-may-see"
SECRET = "sk-key-that-nobody-may-see"
INTRUSION = {"text": "intruder", "title": "intruder", "name": "intruder", "archived": True, "post": "yes"}


@dataclass
class Household:
    """One person's rows and the workspace's, and the values that put them into addresses."""

    values: dict[str, str]
    rows: list[Row]

    def addresses(self) -> list[Address]:
        return addresses(self.values)

    def state(self) -> list[dict[str, Any]]:
        return [type(row)._default_manager.values().get(pk=row.pk) for row in self.rows]


@pytest.fixture
def people(committed: None) -> Iterator[Callable[..., User]]:
    """Makes people who are gone after the test, with everything that is theirs.

    There is no transaction around these tests: a view that streams gives its database connection back.
    """
    made: list[User] = []

    def make(**fields: Any) -> User:
        made.append(User.objects.create_user(f"access-{uuid4().hex}", **fields))
        return made[-1]

    yield make
    for person in made:
        person.delete()


@pytest.fixture
def household(people: Callable[..., User]) -> Iterator[Household]:
    owner = people(first_name=PRIVATE)
    unique = uuid4().hex
    provider = Provider.objects.create(name=unique, base_url="http://127.0.0.1:9/v1", api_key=SECRET)
    prompt = save_system_prompt(user=None, text="Be kind.", activate=False)
    profile, reminder = BudgetProfile.objects.create(name=unique), Reminder.objects.create(text="Be brief.")
    group = Group.objects.create(name=unique)
    model = Model.objects.create(provider=provider, name="m")
    persona = Persona.objects.create(owner=owner, name=PRIVATE, instructions=PRIVATE)
    token, _ = create_token(user=owner, name="notebook")
    turn = _turn(owner, model, persona)
    rows: list[Row] = [owner, provider, prompt, profile, reminder, group, model, persona, token, turn]
    rows += [turn.conversation, turn.user_message, turn.answer]
    search = WebSearch.objects.create(name=unique, base_url="http://127.0.0.1:9", api_key=SECRET)
    server = ToolServer.objects.create(name=unique[:24], base_url="http://127.0.0.1:9/mcp", api_key=SECRET)
    embedder = Embedder.objects.create(name=unique, api_key=SECRET)
    project, file, member = _project(owner, people())
    rows += [embedder, search, server, project, file, member]
    values = {
        **{f"{row._meta.model_name}/object_id": str(row.pk) for row in rows},
        "c/pk": str(turn.conversation_id),
        "conversations/pk": str(turn.conversation_id),
        "messages/pk": str(turn.answer_id),
        "turns/pk": str(turn.pk),
        "projects/pk": str(project.pk),
        "members/member": str(member.user_id),
        "files/pk": str(file.pk),
        "files/file": str(file.pk),
        "user/id": str(owner.pk),
        "r/content_type_id": str(ContentType.objects.get_for_model(User).pk),
        "object_id": str(owner.pk),
        "app_label": "llm",
        "admin/url": "nothing-here",
        "format": "json",
    }
    yield Household(values, rows)
    for row in (provider, prompt, profile, reminder, group, embedder, search, server):
        row.delete()


def _turn(owner: User, model: Model, persona: Persona) -> Turn:
    conversation = Conversation.objects.create(owner=owner, title=PRIVATE, persona=persona)
    parts = [{"type": "text", "text": PRIVATE}]
    question = Message.objects.create(conversation=conversation, role="user", parts=parts)
    answer = Message.objects.create(
        conversation=conversation, parent=question, depth=1, role="assistant", parts=parts, model=model
    )
    Conversation.objects.filter(pk=conversation.pk).update(leaf=answer)
    return Turn.objects.create(
        conversation=conversation, user_message=question, answer=answer, model=model, status="done"
    )


def _project(owner: User, reader: User) -> tuple[Project, File, Membership]:
    project = Project.objects.create(owner=owner, name=PRIVATE, instructions=PRIVATE)
    file = File.objects.create(owner=owner, name=f"{PRIVATE}.txt", size=1, sha256="0" * 64, status="failed")
    ProjectFile.objects.create(project=project, file=file)
    return project, file, Membership.objects.create(project=project, user=reader)


def signed_in(person: User, **options: Any) -> Client:
    client = Client(raise_request_exception=False, **options)
    client.force_login(person)
    return client


def ask(client: Client, method: str, url: str) -> Any:
    body: Any = json.dumps(INTRUSION) if url.startswith("/api/") else INTRUSION
    if method == "POST" and not url.startswith("/api/"):
        return client.post(url, body)
    return client.generic(method, url, json.dumps(INTRUSION), content_type="application/json")


def content(response: Any) -> str:
    parts = response.streaming_content if response.streaming else [response.content]
    return b"".join(parts).decode(errors="replace")


def to_sign_in(response: Any) -> bool:
    return response.status_code == 302 and urlsplit(response["Location"]).path in ("/login/", "/admin/login/")


def test_every_kind_of_row_in_the_admin_is_walked(household: Household) -> None:
    """Otherwise an address of the admin is asked with an id of something else, and every answer is a 404."""
    walked = {type(row) for row in household.rows}
    unknown = {
        address.url
        for address in household.addresses()
        if address.admin and "object_id" in address.parameters and not address.url.startswith("/admin/r/")
        for app, name in [address.url.split("/")[2:4]]
        if apps.get_model(app, name) not in walked
    }
    assert not unknown, "give the household a row for each"


def test_what_is_not_public_asks_strangers_to_sign_in(household: Household) -> None:
    client, wrong = Client(raise_request_exception=False), []
    for address in household.addresses():
        for method in METHODS:
            response = ask(client, method, address.url)
            refused = response.status_code in (401, 403, 404, 405) or to_sign_in(response)
            if (address.url not in PUBLIC | SIGNING_OUT and not refused) or response.status_code == 500:
                wrong.append((method, address.url, response.status_code))
            assert PRIVATE not in content(response)
    assert not wrong, "\n".join(map(str, wrong))


def test_public_addresses_are_there(client: Client, household: Household) -> None:
    known = {address.url for address in household.addresses()}
    assert known >= PUBLIC
    assert all(client.get(url).status_code in (200, 503) for url in PUBLIC)


def test_other_peoples_rows_are_neither_seen_nor_changed(household: Household, people: Callable[..., User]) -> None:
    before = household.state()
    intruder = people()
    client, wrong = signed_in(intruder), []
    for address in household.addresses():
        for method in METHODS:
            response = ask(client, method, address.url)
            client.force_login(intruder)  # one of the addresses signs out
            status = response.status_code
            if address.admin:
                fine = to_sign_in(response) or address.url in PUBLIC | SIGNING_OUT
            elif {"pk", "object_id", "id"} & set(address.parameters):
                fine = status in (403, 404, 405) or (method == "OPTIONS" and status == 200)
            else:
                fine = status != 500
            if not fine:
                wrong.append((method, address.url, status))
            assert PRIVATE not in content(response), (method, address.url)
    assert not wrong, "\n".join(map(str, wrong))
    assert household.state() == before


def test_staff_without_permissions_see_no_rows(household: Household, people: Callable[..., User]) -> None:
    before = household.state()
    client = signed_in(people(is_staff=True))
    for address in household.addresses():
        if not address.admin or not {"object_id", "id"} & set(address.parameters):
            continue
        for method in ("GET", "POST"):
            response = ask(client, method, address.url)
            assert response.status_code in (302, 403, 404), (method, address.url, response.status_code)
            assert PRIVATE not in content(response)
    assert household.state() == before


def test_the_admin_shows_administrators_no_secret_and_no_private_words(
    household: Household, people: Callable[..., User]
) -> None:
    admin = signed_in(people(is_staff=True, is_superuser=True))
    digest = next(row.digest for row in household.rows if isinstance(row, ApiToken))
    seen = 0
    for address in household.addresses():
        if not address.admin or address.url in SIGNING_OUT:
            continue
        response = admin.get(address.url, follow=True)
        assert response.status_code in (200, 403, 404, 405), (address.url, response.status_code)
        seen += response.status_code == 200
        page = content(response)
        assert SECRET not in page, address.url
        assert digest not in page, address.url
        if "/accounts/user/" not in address.url:  # the person's own name is there
            assert PRIVATE not in page, address.url
    assert seen > 50


def test_a_browser_is_not_tricked_into_changing_anything(household: Household) -> None:
    """Requests with the owner's session and without the token that our own pages carry."""
    owner = next(row for row in household.rows if isinstance(row, User))
    client = signed_in(owner, enforce_csrf_checks=True)
    before = household.state()
    for address in household.addresses():
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            response = ask(client, method, address.url)
            assert response.status_code in (302, 403, 404, 405), (method, address.url, response.status_code)
    assert household.state() == before


def test_an_address_of_an_unknown_kind_is_not_passed_over(household: Household) -> None:
    del household.values["c/pk"]
    with pytest.raises(LookupError, match="do not know"):
        household.addresses()
