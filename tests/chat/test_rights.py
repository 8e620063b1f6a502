"""Rights of a person's groups hold on pages, in the API, the OpenAI protocol, runs, tools and open streams."""

import html
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Unpack
from uuid import UUID, uuid4

import pytest
from django.core.files.base import ContentFile
from django.test import Client
from django.utils import timezone

from accounts.access.rights import MISSING_RIGHTS, rights_of
from accounts.groups.services import GroupFields, save_group
from accounts.models import OpenIDIdentity, PeopleGroup, Right, User
from accounts.services import create_token
from chat.conversations.erasing import erase_old
from chat.models import Conversation, Message, Share, Turn
from chat.models.conversation_state import ChatScope, scope_of
from chat.openai_api.names import find_named, named_models
from chat.prompts.turn_context import base_context, context_of_draft
from chat.turns import rights
from chat.turns.submit import Ask, submit
from core.errors import ProductError
from llm.models import Model, Provider, ToolServer, WebSearch
from personas.models import Persona, PersonaShare
from personas.services import model_for
from projects.models import Membership, Project
from projects.planner.models import Task
from projects.planner.rules import Actor, NewTask
from projects.planner.services import create as create_task
from tests.accounts.openid_browser import row_of, sign_in
from tests.accounts.openid_provider import providing
from tests.application import Application
from tests.chat.conversations import past
from tests.chat.openai_clients import posted
from tests.conftest import Person
from tests.contrib.ag_ui import client as ag_ui
from tests.sockets import open_socket

database = pytest.mark.django_db


def everyone(**fields: Unpack[GroupFields]) -> None:
    save_group(user=None, group=PeopleGroup.objects.get(everyone=True), fields=fields)


def nothing_for_everyone() -> None:
    everyone(all_models=False, all_tool_servers=False, may=[])


@pytest.fixture
def olga() -> User:
    return User.objects.create_user(f"olga-{uuid4().hex}")


@pytest.fixture
def model() -> Model:
    provider = Provider.objects.create(name=uuid4().hex, base_url="http://127.0.0.1:9/v1")
    Model.objects.create(provider=provider, name=f"other {uuid4().hex}", tools=True)
    return Model.objects.create(provider=provider, name=f"named {uuid4().hex}", tools=True)


@pytest.fixture
def client(olga: User) -> Client:
    browser = Client()
    browser.force_login(olga)
    return browser


def task_of(user: User) -> str:
    return str(create_task(actor=Actor(user), new=NewTask("Sail", archetype="hybrid")).pk)


def post(client: Client, path: str, **body: object) -> int:
    return client.post(path, json.dumps(body), content_type="application/json").status_code


def asks(user: User, model: Model) -> bool:
    try:
        submit(user=user, conversation=Conversation.objects.create(owner=user), ask=Ask("Hi", models=[model.pk]))
    except ProductError as error:
        assert (error.code, error.status) == ("not_found", 404)
        return False
    return True


def found_in_protocol(user: User, name: str) -> bool:
    try:
        return bool(find_named(user, name))
    except ProductError as error:
        assert error.code == "model_not_found"
        return False


def shown(client: Client, path: str, model: Model) -> bool:
    return str(model.pk) in client.get(path).content.decode()


# Whether a model is within a person's reach, by each way there is to one.
WAYS: dict[str, Callable[[Client, User, Model], bool]] = {
    "list": lambda client, user, model: shown(client, "/api/v1/models/?page_size=200", model),
    "one": lambda client, user, model: client.get(f"/api/v1/models/{model.pk}/").status_code == 200,
    "composer": lambda client, user, model: shown(client, "/", model) or shown(client, "/models/", model),
    "persona": lambda client, user, model: shown(client, "/personas/new/", model),
    "persona by program": lambda client, user, model: (
        post(client, "/api/v1/personas/", name=uuid4().hex, instructions="", model=str(model.pk)) == 201
    ),
    "send": lambda client, user, model: asks(user, model),
    "summary": lambda client, user, model: (
        post(client, f"/api/v1/conversations/{past(user, 1).pk}/summarise/", model=str(model.pk)) != 404
    ),
    "run": lambda client, user, model: post(client, f"/api/v1/tasks/{task_of(user)}/runs/", model=str(model.pk)) == 202,
    "protocol": lambda client, user, model: model.name in [each.name for each in named_models(user)],
    "protocol, by name": lambda client, user, model: found_in_protocol(user, model.name),
    "protocol, by id": lambda client, user, model: found_in_protocol(user, str(model.pk)),
    "its persona": lambda client, user, model: model_for(Persona(model=model), user) == model,
}
GROUPS: dict[str, Callable[[User, Model], object]] = {
    "everyone has all": lambda user, model: None,
    "another group has it": lambda user, model: save_group(
        user=None, group=None, fields={"name": "Others", "allowed_models": [model]}
    ),
    "a group of theirs has it": lambda user, model: save_group(
        user=None, group=None, fields={"name": "Theirs", "members": [user], "allowed_models": [model]}
    ),
    "a group of theirs has all": lambda user, model: save_group(
        user=None, group=None, fields={"name": "Theirs", "members": [user], "all_models": True}
    ),
}


@database
@pytest.mark.parametrize("groups", GROUPS)
def test_a_model_is_in_reach_by_every_way_or_by_none(groups: str, client: Client, olga: User, model: Model) -> None:
    if groups != "everyone has all":
        other = Model.objects.exclude(pk=model.pk).get(provider=model.provider)
        everyone(all_models=False, allowed_models=[other])
    GROUPS[groups](olga, model)
    expected = rights_of(olga).uses_model(model.pk)
    assert expected == (groups != "another group has it")
    assert {way: in_reach(client, olga, model) for way, in_reach in WAYS.items()} == dict.fromkeys(WAYS, expected)


@database
def test_who_may_use_no_model_is_told_so(olga: User, model: Model) -> None:
    nothing_for_everyone()
    with pytest.raises(ProductError) as refused:
        submit(user=olga, conversation=Conversation.objects.create(owner=olga), ask=Ask("Hi"))
    assert (refused.value.code, refused.value.status) == ("right_missing", 403)


def share(client: Client, user: User) -> int:
    return post(client, f"/api/v1/conversations/{past(user, 1).pk}/shares/")


def publish(client: Client, user: User) -> int:
    return post(client, "/api/v1/personas/", name=uuid4().hex, instructions="", visibility="workspace")


def run(client: Client, user: User) -> int:
    return post(client, f"/api/v1/tasks/{task_of(user)}/runs/")


def make_token(client: Client, user: User) -> int:
    try:
        create_token(user=user, name="notebook")
    except ProductError as error:
        return error.status
    return 201


def upload(client: Client, user: User) -> int:
    return client.post("/api/v1/files/", {"file": ContentFile(b"Hello", "a.txt")}).status_code


def export(client: Client, user: User) -> int:
    return client.get(f"/api/v1/conversations/{past(user, 1).pk}/export/").status_code


def share_inside(client: Client, user: User) -> int:
    return post(client, f"/api/v1/conversations/{past(user, 1).pk}/team-shares/", username="nobody")


ACTS = {
    Right.SHARE: share,
    Right.SHARE_INSIDE: share_inside,
    Right.PUBLISH_PERSONAS: publish,
    Right.RUN_TASKS: run,
    Right.TOKENS: make_token,
    Right.UPLOAD: upload,
    Right.EXPORT: export,
}


@database
@pytest.mark.parametrize("right", ACTS)
def test_an_act_is_carried_out_with_its_right_alone(right: Right, client: Client, olga: User, model: Model) -> None:
    everyone(may=[each for each in Right if each != right])
    assert ACTS[right](client, olga) == 403
    save_group(user=None, group=None, fields={"name": "Theirs", "members": [olga], "may": [right]})
    assert ACTS[right](client, olga) in (200, 201, 202)


def undrafted(user: User) -> str:
    """Return a task whose draft is not due."""
    pk = task_of(user)
    Task.objects.filter(pk=pk).update(draft="")
    return pk


# Where an act is offered: the address, by what the page has then, and the right.
OFFERED: list[tuple[Right, Callable[[User], str], str]] = [
    (Right.SHARE, lambda user: f"/c/{past(user, 1).pk}/share/", 'name="shows_context"'),
    (Right.SHARE, lambda user: f"/c/{past(user, 1).pk}/organise/", "data-share"),
    (Right.SHARE_INSIDE, lambda user: f"/c/{past(user, 1).pk}/team-shares/", 'name="may_copy"'),
    (Right.SHARE_INSIDE, lambda user: f"/c/{past(user, 1).pk}/organise/", "/team-shares/"),
    (Right.EXPORT, lambda user: f"/c/{past(user, 1).pk}/organise/", "Export as JSON"),
    (Right.EXPORT, lambda user: "/import/", "Export everything"),
    (Right.UPLOAD, lambda user: "/import/", 'name="file"'),
    (Right.UPLOAD, lambda user: "/files/", 'id="upload-files"'),
    (Right.TOKENS, lambda user: "/settings/tokens/", "Make token"),
    (Right.PUBLISH_PERSONAS, lambda user: "/personas/new/", "Everybody may use, read and duplicate it"),
    (Right.WEB, lambda user: "/personas/new/", 'value="open_url"'),
    (Right.WEB, lambda user: f"/projects/{Project.objects.create(owner=user, name='P').pk}/", 'name="web"'),
    (Right.RUN_TASKS, lambda user: f"/tasks/{undrafted(user)}/run/", "It drafts a checklist first"),
]


@database
def test_pages_offer_what_one_may_do_and_say_why_not(client: Client, olga: User, model: Model) -> None:
    olga.set_password(uuid4().hex)  # without one, tokens ask for a fresh sign-in
    olga.save()
    client.force_login(olga)
    pages = [(right, address(olga), words) for right, address, words in OFFERED]
    assert {right for right, *_ in pages} == {*Right}
    for may in ([*Right], []):
        everyone(may=may)
        for right, address, words in pages:
            page = client.get(address).text
            assert (words in page, html.escape(MISSING_RIGHTS[right]) in page) == (bool(may), not may), (address, right)


@database
def test_a_link_leads_nowhere_while_its_owner_may_not_share(client: Client, olga: User) -> None:
    share(client, olga)
    address = f"/s/{Share.objects.get(conversation__owner=olga).token}/"
    assert client.get(address).status_code == 200
    everyone(may=[])
    assert client.get(address).status_code == 404


@database
def test_tools_are_those_that_a_group_may_use_and_what_is_missing_is_said(olga: User, model: Model) -> None:
    WebSearch.objects.create(name=uuid4().hex, base_url="http://127.0.0.1:9", active=True)
    for name in ("calendar", "mail"):
        listed = {"tool": "when", "name": f"{name}__when", "description": "", "parameters": {}}
        ToolServer.objects.create(name=name, base_url="http://127.0.0.1:9/mcp", tools=[listed], approval_required=False)
    persona = Persona.objects.create(owner=olga, name="P", tools=["web_search", "calendar__*", "mail__*"])

    def planned() -> tuple[set[str], str]:
        scope = ChatScope(persona=persona)
        base = base_context(user=olga, model=model, scope=scope)
        box = context_of_draft(base=base, scope=scope, text="", files=()).toolbox
        return {*box.tools}, " ".join(note.english for note in box.notes)

    assert planned()[0] >= {"web_search", "calendar__when", "mail__when"}
    nothing_for_everyone()
    calendar = ToolServer.objects.get(name="calendar")
    save_group(user=None, group=None, fields={"name": "T", "members": [olga], "allowed_tool_servers": [calendar]})
    tools, notes = planned()
    assert tools >= {"calendar__when"}
    assert not tools & {"web_search", "mail__when"}
    assert "mail" in notes
    assert "web_search" in notes


def using(
    user: User,
    model: Model,
    *,
    persona: UUID | None = None,
    project: UUID | None = None,
    web: bool = False,
    servers: frozenset[str] = frozenset(),
    tasks: bool = False,
) -> dict[UUID, rights.TurnUses]:
    return {uuid4(): rights.TurnUses(user, model.pk, persona, project, web, servers, tasks)}


@database
def test_a_turn_may_go_on_until_what_it_uses_is_taken_away(olga: User, model: Model) -> None:
    other = User.objects.create_user(uuid4().hex)
    persona = Persona.objects.create(owner=other, name="P", visibility="workspace")
    project = Project.objects.create(owner=other, name="P")
    membership = Membership.objects.create(project=project, user=olga)
    group = save_group(user=None, group=None, fields={"name": "Theirs", "members": [olga]})
    by_group = Persona.objects.create(owner=other, name="By group"), Project.objects.create(owner=other, name="G")
    PersonaShare.objects.create(persona=by_group[0], group=group)
    Membership.objects.create(project=by_group[1], group=group)
    turns = [
        (using(olga, model, web=True, servers=frozenset({"calendar"})), rights.TOOLS),
        (using(olga, model, tasks=True), rights.TASKS),
        (using(olga, model, persona=persona.pk), rights.PERSONA),
        (using(olga, model, project=project.pk), rights.PROJECT),
        (using(olga, model, persona=by_group[0].pk), rights.PERSONA),
        (using(olga, model, project=by_group[1].pk), rights.PROJECT),
    ]
    assert [rights.find_lost_rights(uses) for uses, _ in turns] == [{}] * 6
    everyone(all_models=True, may=[])
    Persona.objects.filter(pk=persona.pk).update(visibility="private")
    membership.delete()
    group.members.remove(olga)
    assert [[*rights.find_lost_rights(uses).values()] for uses, _ in turns] == [[sentence] for _, sentence in turns]
    nothing_for_everyone()
    assert {*rights.find_lost_rights(using(olga, model)).values()} == {rights.MODEL}


@database
def test_a_persona_that_is_shared_no_more_answers_no_more(olga: User, model: Model, client: Client) -> None:
    other = User.objects.create_user(uuid4().hex)
    persona = Persona.objects.create(owner=other, name="P", instructions="Whisper.", model=model)
    share = PersonaShare.objects.create(persona=persona, user=olga, username=olga.username)
    conversation = Conversation.objects.create(owner=olga, persona=persona)
    [turn] = submit(user=olga, conversation=conversation, ask=Ask("Hi", models=[model.pk]))
    context = base_context(user=olga, model=model, scope=scope_of(conversation))
    rights.require_rights(context, conversation)
    share.delete()
    context = base_context(user=olga, model=model, scope=scope_of(conversation))
    with pytest.raises(ProductError) as lost:
        rights.require_rights(context, conversation)
    assert lost.value.code == "right_lost"
    Turn.objects.filter(pk=turn.pk).update(status="done")
    address, before = f"/api/v1/conversations/{conversation.pk}/", Message.objects.count()
    refused = client.post(f"{address}turns/", {"text": "Again", "models": [str(model.pk)]}, "application/json")
    assert (refused.status_code, refused.json()["code"]) == (403, "persona_lost")
    assert Message.objects.count() == before
    assert "Whisper." not in client.post(f"{address}plan/", {"text": "Again"}, "application/json").text
    assert client.patch(address, {"persona": None}, "application/json").status_code == 200
    again = client.post(f"{address}turns/", {"text": "Again", "models": [str(model.pk)]}, "application/json")
    assert again.status_code == 202


@database
def test_the_persona_of_a_project_answers_whoever_is_in_it(olga: User, model: Model) -> None:
    other = User.objects.create_user(uuid4().hex)
    persona = Persona.objects.create(owner=other, name="P")
    project = Project.objects.create(owner=other, name="P", persona=persona)
    Membership.objects.create(project=project, user=olga)
    base = base_context(user=olga, model=model, scope=ChatScope(project=project, persona=persona))
    assert rights.find_lost_rights({uuid4(): rights.get_uses(base)}) == {}


@pytest.fixture
def restored() -> Iterator[None]:
    """Restore the rights of the group of everyone, which all tests of a process share."""
    yield
    full = PeopleGroup.of_everyone()
    PeopleGroup.objects.filter(everyone=True).update(all_models=True, all_tool_servers=True, may=full.may)


def test_an_answer_stops_when_its_model_is_taken_away_and_keeps_its_text(
    application: Application, person: Person, restored: None
) -> None:
    turn = person.caller.ask("Write", {"text": "word " * 4000, "interval": 0.05})
    for event in person.caller.events(turn["id"]):
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            PeopleGroup.objects.filter(everyone=True).update(all_models=False)
            break
    ended = person.caller.ended(turn["id"])
    assert (ended["status"], ended["error"]["code"]) == ("failed", "right_lost")
    assert "word" in ended["parts"][0]["text"]


def test_a_group_of_the_provider_gained_and_lost_counts_for_what_is_open_already(
    application: Application, person: Person, restored: None
) -> None:
    """A socket that is open already gets the rights of the new group. Its answer, there and in a stream, ends when the
    next sign-in takes the group away. `contrib.bench shares` measures how soon."""
    PeopleGroup.objects.filter(everyone=True).update(all_models=False)
    group = save_group(user=None, group=None, fields={"name": uuid4().hex, "claim": "sales", "all_models": True})
    text = f"Write\nscript: {json.dumps({'text': 'word ' * 4000, 'interval': 0.05})}"
    place = person.caller.conversation()
    with providing() as provider, open_socket(application, {"Authorization": f"Bearer {person.token}"}) as socket:
        row = row_of(provider)
        OpenIDIdentity.objects.create(user=person.user, issuer=row.issuer, subject=provider.person["sub"])
        socket.send("send", conversation=place, text=text)
        assert socket.until("ERROR")[-1]["code"] == "right_missing"
        provider.person["groups"] = ["sales"]
        sign_in(provider, row)
        socket.send("watch", conversation=place)
        socket.send("send", conversation=place, text=text)
        turn = socket.until("TURN")[-1]["turn"]
        socket.send("subscribe", turn=turn)
        socket.until("TEXT_MESSAGE_CONTENT")
        stream = person.caller.events(turn)
        next(event for event in stream if event["type"] == "TEXT_MESSAGE_CONTENT")
        provider.person["groups"] = []
        sign_in(provider, row)
        assert (socket.until("RUN_ERROR")[-1]["code"], [*stream][-1]["code"]) == ("right_lost", "right_lost")
        row.delete()
    group.delete()


def test_both_protocols_refuse_what_ones_groups_and_roles_do_not_give(
    application: Application, person: Person, stranger: Person, able: Model, search: None, restored: None
) -> None:
    """The refusals cover other people's models, personas, projects, threads and files, and tools of other groups."""
    theirs = Model.objects.create(provider=able.provider, name=f"kept {uuid4().hex}")
    persona = Persona.objects.create(owner=stranger.user, name=uuid4().hex, model=able)
    project = Project.objects.create(owner=stranger.user, name=uuid4().hex)
    thread = stranger.caller.conversation()
    file = stranger.caller.http.post("files/", files={"file": ("a.txt", b"Hello")}).json()["id"]
    group = PeopleGroup.objects.filter(everyone=True)
    group.update(all_models=False, may=[each for each in Right if each != Right.WEB])
    group.get().allowed_models.add(able)
    own, note = Persona.objects.create(owner=person.user, name="P", model=able, tools=["web_search"]), uuid4().hex

    def completion(model: object, project: object = "") -> int:
        body = {"model": str(model), "messages": [{"role": "user", "content": note}]}
        return posted(person, "chat/completions", body, **{"X-Glasshouse-Project": str(project)}).status_code

    def run(thread: str = "", **props: object) -> int:
        named = {name: [pk] if name == "files" else str(pk) for name, pk in props.items()}
        body = ag_ui.run_input(ag_ui.user(note), thread=thread, forwardedProps=named)
        with person.caller.http.stream("POST", "ag-ui/", json=body, headers={"Accept": "text/event-stream"}) as answer:
            answer.read()
        return answer.status_code

    def with_web_search() -> bool:
        return any("web_search" in str(each.body.get("tools")) for each in application.model.requests(note))

    refused = [completion(theirs.name), completion(theirs.pk), completion(persona.pk), completion(able.pk, project.pk)]
    refused += [run(model=theirs.pk), run(persona=persona.pk), run(thread, model=able.pk)]
    refused += [run(files=file, model=able.pk)]
    assert refused == [404] * 8
    assert not application.model.requests(note) and not Turn.objects.filter(conversation__owner=person.user).exists()
    assert (completion(own.pk), run(persona=own.pk), run(model=able.pk)) == (200,) * 3
    assert len(application.model.requests(note)) >= 3 and not with_web_search()
    group.update(may=[*Right])
    assert completion(own.pk) == 200 and with_web_search()
    group.get().allowed_models.clear()


@database
def test_conversations_are_kept_as_long_as_a_group_says_and_else_as_the_workspace(olga: User) -> None:
    other = User.objects.create_user(uuid4().hex)
    save_group(user=None, group=None, fields={"name": "Short", "members": [olga], "conversation_days": 5})
    save_group(user=None, group=None, fields={"name": "For ever", "members": [olga], "conversation_days": 0})
    for user in (olga, other):
        Conversation.objects.filter(pk=past(user, 1).pk).update(updated=timezone.now() - timedelta(days=6))
    assert erase_old() == 1
    assert not Conversation.objects.filter(owner=olga).exists()
    assert Conversation.objects.filter(owner=other).exists()
