"""Roles in another person's personas and projects, at every address that leads to one.

The addresses come from the URLconf, so that a new one fails here until its role is named. Models, tools and the other
rights are in `tests/chat/test_rights.py`, rows that are not shared in `test_access.py`.
"""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone

from accounts.models import PeopleGroup, Role, User
from chat.openai_api.names import named_models
from chat.turns import rights
from core.errors import NotFound
from files.models import File
from llm.models import Model, Provider
from personas.models import Persona, PersonaShare
from personas.sharing import roles as persona_roles
from projects.models import Invitation, Membership, Project, ProjectFile, roles
from tests.config.addresses import addresses

pytestmark = pytest.mark.django_db

MARKER = "words-of-their-owner"
NAME, OTHER = "name-of-it", "00000000-0000-4000-8000-000000000000"
READER, EDITOR, OWNER = Role.READER, Role.EDITOR, Role.OWNER
ROLE = {"role": "reader"}
# By method and address (`*` the persona or project, `~` a row of it): the role that it asks for, and what is sent.
NEEDS: dict[tuple[str, str], tuple[Role, dict[str, Any]]] = {
    ("GET", "/personas/*/"): (READER, {}),
    ("POST", "/personas/*/"): (EDITOR, {}),
    ("POST", "/personas/*/plan/"): (READER, {"text": "Hi"}),
    ("POST", "/personas/*/duplicate/"): (READER, {}),
    ("GET", "/personas/*/delete/"): (OWNER, {}),
    ("POST", "/personas/*/delete/"): (OWNER, {}),
    ("GET", "/personas/*/shares/"): (OWNER, {}),
    ("POST", "/personas/*/shares/"): (OWNER, {"username": "anybody", **ROLE}),
    ("POST", "/personas/*/shares/~/"): (OWNER, ROLE),
    ("POST", "/personas/*/shares/~/remove/"): (OWNER, {}),
    ("POST", "/personas/*/shares/~/hand-over/"): (OWNER, {}),
    ("GET", "/api/v1/personas/*/"): (READER, {}),
    ("PATCH", "/api/v1/personas/*/"): (EDITOR, {"description": "Changed"}),
    ("DELETE", "/api/v1/personas/*/"): (OWNER, {}),
    ("GET", "/api/v1/personas/*/shares/"): (OWNER, {}),
    ("POST", "/api/v1/personas/*/shares/"): (OWNER, {"username": "anybody"}),
    ("PATCH", "/api/v1/personas/*/shares/~/"): (OWNER, ROLE),
    ("DELETE", "/api/v1/personas/*/shares/~/"): (OWNER, {}),
    ("POST", "/api/v1/personas/*/shares/~/hand_over/"): (OWNER, {}),
    ("GET", "/projects/*/"): (READER, {}),
    ("POST", "/projects/*/settings/"): (EDITOR, {"name": NAME}),
    ("GET", "/projects/*/meter/"): (READER, {}),
    ("GET", "/projects/*/conversations/"): (READER, {}),
    ("GET", "/projects/*/search/"): (READER, {}),
    ("POST", "/projects/*/delete/"): (OWNER, {}),
    ("POST", "/projects/*/upload/"): (EDITOR, {}),
    ("GET", "/projects/*/files/"): (READER, {}),
    ("POST", "/projects/*/files/"): (EDITOR, {"file": "~file"}),
    ("GET", "/projects/*/files/choose/"): (EDITOR, {}),
    ("POST", "/projects/*/files/~/"): (EDITOR, {"pinned": "true"}),
    ("POST", "/projects/*/files/~/remove/"): (EDITOR, {}),
    ("GET", "/projects/*/members/"): (READER, {}),
    ("POST", "/projects/*/members/"): (OWNER, {"username": "anybody", **ROLE}),
    ("POST", "/projects/*/members/~/"): (OWNER, ROLE),
    ("POST", "/projects/*/members/~/remove/"): (OWNER, {}),
    ("POST", "/projects/*/members/~/hand-over/"): (OWNER, {}),
    ("POST", "/projects/*/groups/"): (OWNER, {"group": "~group", **ROLE}),
    ("POST", "/projects/*/invitations/~/withdraw/"): (OWNER, {}),
    ("GET", "/api/v1/projects/*/"): (READER, {}),
    ("PATCH", "/api/v1/projects/*/"): (EDITOR, {"name": NAME}),
    ("DELETE", "/api/v1/projects/*/"): (OWNER, {}),
    ("POST", "/api/v1/projects/*/search/"): (READER, {"query": "fee"}),
    ("GET", "/api/v1/projects/*/files/"): (READER, {}),
    ("POST", "/api/v1/projects/*/files/"): (EDITOR, {"file": "~file"}),
    ("PATCH", "/api/v1/projects/*/files/~/"): (EDITOR, {"pinned": True}),
    ("DELETE", "/api/v1/projects/*/files/~/"): (EDITOR, {}),
    ("GET", "/api/v1/projects/*/members/"): (READER, {}),
    ("POST", "/api/v1/projects/*/members/"): (OWNER, {"username": "anybody"}),
    ("PATCH", "/api/v1/projects/*/members/~/"): (OWNER, ROLE),
    ("DELETE", "/api/v1/projects/*/members/~/"): (OWNER, {}),
    ("GET", "/api/v1/projects/*/groups/"): (READER, {}),
    ("POST", "/api/v1/projects/*/groups/"): (OWNER, {"group": "~group"}),
    ("PATCH", "/api/v1/projects/*/groups/~/"): (OWNER, ROLE),
    ("DELETE", "/api/v1/projects/*/groups/~/"): (OWNER, {}),
    ("POST", "/api/v1/projects/*/hand_over/"): (OWNER, {"member": "~member"}),
    ("GET", "/api/v1/projects/*/invitations/"): (OWNER, {}),
    ("DELETE", "/api/v1/projects/*/invitations/~/"): (OWNER, {}),
}
# Whom it is shared with: by themselves, and by groups that they are in.
PEOPLE: dict[str, tuple[Role | None, list[Role], Role | None]] = {
    "a stranger": (None, [], None),
    "who edits": (EDITOR, [], EDITOR),
    "who reads by a group": (None, [READER], READER),
    "who edits by one of two groups": (READER, [READER, EDITOR], EDITOR),
    "who owns it by a group": (EDITOR, [OWNER], OWNER),
}


class Rows(dict[str, str]):
    """Values of the URLconf's parameters: the ids of the persona and the project, and any id for all others."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return OTHER


class Place:
    """A persona and a project of one owner, with a row of each kind in them."""

    def __init__(self) -> None:
        owner, other = (User.objects.create_user(uuid4().hex) for _ in range(2))
        model = Model.objects.create(
            provider=Provider.objects.create(name=uuid4().hex, base_url="http://127.0.0.1:9/v1"), name=uuid4().hex
        )
        self.persona = Persona.objects.create(owner=owner, name=NAME, instructions=MARKER, model=model)
        self.project = Project.objects.create(owner=owner, name=NAME, instructions=MARKER)
        file = File.objects.create(owner=owner, name="a.txt", size=1, sha256="0" * 64, status="failed")
        ProjectFile.objects.create(project=self.project, file=file)
        self.groups = {role: PeopleGroup.objects.create(name=uuid4().hex) for role in Role}
        for role, group in self.groups.items():
            PersonaShare.objects.create(persona=self.persona, group=group, role=role)
            Membership.objects.create(project=self.project, group=group, role=role)
        share = PersonaShare.objects.create(persona=self.persona, user=other, username=other.username)
        Membership.objects.create(project=self.project, user=other)
        invitation = Invitation.objects.create(
            project=self.project, username="invited", expires=timezone.now() + timedelta(days=1)
        )
        some = str(self.groups[READER].pk)
        self.named = {"~file": str(file.pk), "~group": some, "~member": str(other.pk)}
        self.rows = Rows(
            {
                "personas/pk": str(self.persona.pk),
                "projects/pk": str(self.project.pk),
                "shares/share": str(share.pk),
                "files/file": str(file.pk),
                "members/member": str(other.pk),
                "groups/group": some,
                "invitations/invitation": str(invitation.pk),
            }
        )

    def person(self, own: Role | None, of_groups: list[Role]) -> User:
        person = User.objects.create_user(uuid4().hex)
        if own is not None:
            PersonaShare.objects.create(persona=self.persona, user=person, username=person.username, role=own)
            Membership.objects.create(project=self.project, user=person, role=own)
        for role in of_groups:
            self.groups[role].members.add(person)
        return person

    def addresses(self) -> Iterator[tuple[str, str]]:
        """Each as `NEEDS` has it, and filled."""
        mine = {self.rows["personas/pk"], self.rows["projects/pk"]}
        for address in addresses(self.rows):
            own, *others = re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", address.url) or [""]
            if own in mine:
                short = address.url.replace(own, "*")
                yield (short.replace(others[0], "~") if others else short), address.url

    def sent(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {name: self.named.get(value, value) for name, value in fields.items()}


@pytest.fixture
def place() -> Place:
    return Place()


def test_it_is_said_of_each_address_which_role_it_asks_for(place: Place) -> None:
    listed = {address for _method, address in NEEDS}
    assert {short for short, _ in place.addresses()} == listed


def ask(client: Client, method: str, url: str, fields: dict[str, Any]) -> Any:
    """Send a request, and roll its changes back."""
    with transaction.atomic():
        if method == "GET":
            answer: Any = client.get(url)
        elif url.startswith("/api/"):
            answer = client.generic(method, url, json.dumps(fields), content_type="application/json")
        else:
            answer = client.post(url, fields)
        transaction.set_rollback(True)
    return answer


@pytest.mark.parametrize("who", PEOPLE)
def test_what_the_role_says_is_what_happens(place: Place, who: str) -> None:
    own, of_groups, expected = PEOPLE[who]
    person = place.person(own, of_groups)
    order = [None, *Role]
    assert persona_roles.strongest_role(person, place.persona) == expected == role_in(place.project, person)
    client, wrong = Client(raise_request_exception=False), []
    client.force_login(person)
    filled = dict(place.addresses())
    for (method, short), (needed, fields) in NEEDS.items():
        answer = ask(client, method, filled[short], place.sent(fields))
        may = order.index(expected) >= order.index(needed)
        fine = answer.status_code < 500 and (answer.status_code not in (403, 404, 405)) == may
        if expected is None:
            fine = answer.status_code == 404 and MARKER not in answer.text
        if not fine:
            wrong.append((method, short, answer.status_code))
    assert not wrong
    assert shown(client, person, place) == dict.fromkeys(shown(client, person, place), expected is not None)


def role_in(project: Project, person: User) -> Role | None:
    try:
        return roles.get_role(person, project)
    except NotFound:
        return None


def shown(client: Client, person: User, place: Place) -> dict[str, bool]:
    """Whether it is listed, and whether one may begin something with it, by each way there is."""
    persona, project = str(place.persona.pk), str(place.project.pk)
    listed = {url: NAME in client.get(url).text for url in ("/personas/", "/projects/", "/api/v1/personas/")}
    listed["programs' projects"] = NAME in client.get("/api/v1/projects/").text
    listed["the OpenAI protocol"] = NAME in [each.name for each in named_models(person)]
    listed["files"] = person_sees_file(person, place)
    for name, pk in (("persona", persona), ("project", project)):
        answer = ask(client, "POST", "/api/v1/conversations/", {name: pk})
        listed[f"a conversation with the {name}"] = answer.status_code == 201
        listed[f"a page with the {name}"] = client.get(f"/?{name}={pk}", follow=True).status_code == 200
    listed["a turn under way"] = not rights.find_lost_rights(
        {
            uuid4(): rights.TurnUses(
                person, place.persona.model_id or uuid4(), place.persona.pk, place.project.pk, False, frozenset(), False
            )
        }
    )
    return listed


def person_sees_file(person: User, place: Place) -> bool:
    return File.objects.visible_to(person).filter(pk=place.named["~file"]).exists()
