"""Changes of the list of conversations, or of tasks, reach every socket of their person, and no other socket."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from channels.layers import channel_layers
from django.test import Client

from accounts import realtime
from accounts.models import User
from accounts.realtime import News, group_of_person
from accounts.services import create_token
from chat.models import Conversation
from core import background
from llm.models import Model
from projects.members import add_member
from projects.models import Project
from tests.application import Application
from tests.chat.runs.working import DONE, script, tool_model, with_items, work
from tests.conftest import Person
from tests.product import WAIT, until
from tests.sockets import Socket, open_socket, socket_of

FENCE = "fence"  # the member of a frame that carries a mark


class Listener(Socket):
    """A socket that reports its person's news, too."""

    def __init__(self, socket: Socket, person: Person) -> None:
        super().__init__(socket.connection, news=True)
        self.person = person

    def receive(self) -> Any:
        frame = super().receive()
        while FENCE in frame:  # of another listener of the person
            frame = super().receive()
        return frame

    def settled(self) -> list[str]:
        """Return the types of the frames under way, once all have arrived.

        A frame with a mark follows them on each way: after this socket's own frames, then after the news through Redis.
        """
        mark = uuid4().hex
        self.send("ping", id=mark)
        types = self._until(mark)  # and the socket has joined its groups
        background.submit(follow_news(group_of_person(self.person.user.pk), mark)).result(WAIT)
        return types + self._until(mark)

    def _until(self, mark: str) -> list[str]:
        types: list[str] = []
        frame = super().receive()
        while mark not in frame.values():
            if FENCE not in frame:
                types.append(frame["type"])
            frame = super().receive()
        return types


async def follow_news(group: str, mark: str) -> None:
    """Send a frame to the group once all news of this process are sent."""
    while unsent := [task for task in asyncio.all_tasks() if is_news(task)]:
        await asyncio.wait(unsent)
    await channel_layers["default"].group_send(group, {"type": "conversation.title", FENCE: mark})


def is_news(task: "asyncio.Task[Any]") -> bool:
    return getattr(task.get_coro(), "cr_code", None) is realtime._send.__code__


@contextmanager
def listening(application: Application, person: Person, since: str = "") -> Iterator[Listener]:
    with socket_of(application, person, since=since) as socket:
        yield Listener(socket, person)


@contextmanager
def hearing(application: Application, person: Person) -> Iterator[Listener]:
    """Open a socket that gets only later news."""
    with listening(application, person) as listener:
        listener.settled()
        yield listener


def export(*titles: str) -> bytes:
    def conversation(title: str) -> dict[str, Any]:
        message = {"uuid": f"m-{title}", "sender": "human", "text": "Hello", "created_at": "2024-05-01T10:00:00Z"}
        return {"uuid": f"c-{title}", "name": title, "created_at": "2024-05-01T10:00:00Z", "chat_messages": [message]}

    return json.dumps([conversation(title) for title in titles]).encode()


def renamed(person: Person, place: str) -> None:
    person.caller.http.patch(f"conversations/{place}/", json={"title": "Another name"})


def archived(person: Person, place: str) -> None:
    person.caller.http.patch(f"conversations/{place}/", json={"archived": True})


def moved(person: Person, place: str) -> None:
    project = person.caller.post("projects/", {"name": "Contracts"}, expect=201)
    person.caller.http.patch(f"conversations/{place}/", json={"project": project["id"]})


def deleted(person: Person, place: str) -> None:
    person.caller.http.delete(f"conversations/{place}/").raise_for_status()


def deleted_on_the_page(person: Person, place: str) -> None:
    client = Client()
    client.force_login(person.user)
    assert client.post(f"/c/{place}/delete/").status_code == 302


def created(person: Person, place: str) -> None:
    person.caller.conversation()


def ask_and_wait(person: Person, place: str) -> None:
    person.caller.ask("Hello.", {"text": "Hello."}, place)


@pytest.mark.parametrize("change", [created, renamed, archived, moved, deleted, deleted_on_the_page, ask_and_wait])
def test_a_change_of_the_list_is_told_to_all_sockets_of_the_person_and_to_nobody_else(
    application: Application, person: Person, stranger: Person, change: Callable[[Person, str], None]
) -> None:
    place = person.caller.conversation()
    with (
        hearing(application, person) as one,
        hearing(application, person) as other,
        hearing(application, stranger) as other_socket,
    ):
        change(person, place)
        for each in (one, other):
            assert each.receive() == {"type": "CONVERSATIONS"}
        assert other_socket.settled() == []
        stranger.caller.conversation()
        assert other_socket.receive() == {"type": "CONVERSATIONS"}


def test_what_changed_while_a_page_was_on_its_way_is_told_to_its_socket(
    application: Application, person: Person
) -> None:
    before = time.time()
    with hearing(application, person) as socket:
        place = person.caller.conversation()
        assert socket.receive() == {"type": "CONVERSATIONS"}  # so it is noted as well
    with listening(application, person, since=f"{before:.3f}") as late:
        assert late.settled() == ["CONVERSATIONS"]
        late.send("watch", conversation=place)
        assert late.settled() == ["STATE", "ACK"]  # nothing of the conversation itself has changed
    person.caller.ended(person.caller.ask("Hello.", {"text": "Hello."}, place)["id"])
    background.wait_for_background_tasks(WAIT)  # its title is written
    with listening(application, person, since=f"{before:.3f}") as late:
        late.settled()
        late.send("watch", conversation=place)
        assert late.settled() == ["STATE", "NEXT", "MARKS", "ACK"]


@pytest.mark.parametrize("since", ["32503680000.000", "nan", "yesterday"])  # the first is the year 3000
def test_a_page_that_is_up_to_date_is_told_nothing(application: Application, person: Person, since: str) -> None:
    place = person.caller.conversation()
    with hearing(application, person):
        pass
    with listening(application, person, since=since) as socket:
        socket.send("watch", conversation=place)
        assert socket.settled() == ["STATE", "ACK"]


def test_to_a_page_of_long_ago_everything_may_have_changed(application: Application, person: Person) -> None:
    with listening(application, person, since="1000000000.000") as socket:
        assert socket.settled() == ["CONVERSATIONS", "TASKS", "INVITATIONS", "READINGS", "SHARED"]


def test_unarchiving_and_restoring_are_told(application: Application, person: Person) -> None:
    place = person.caller.conversation()
    archived(person, place)
    with hearing(application, person) as socket:
        person.caller.http.patch(f"conversations/{place}/", json={"archived": False})
        assert socket.receive() == {"type": "CONVERSATIONS"}
        deleted(person, place)
        assert socket.receive() == {"type": "CONVERSATIONS"}
        person.caller.post(f"conversations/{place}/restore/", expect=200)
        assert socket.receive() == {"type": "CONVERSATIONS"}


def test_the_title_that_the_model_writes_is_told(application: Application, person: Person) -> None:
    place = person.caller.conversation()
    with hearing(application, person) as socket:
        socket.send("watch", conversation=place)
        person.caller.ask("What is a monad?", {"text": "A monoid.", "title": "Monads, gently"}, place)
        assert socket.until("TITLE")[-1]["title"] == "Monads, gently"
        assert socket.receive() == {"type": "CONVERSATIONS"}


def test_an_import_of_many_conversations_is_told_a_few_times(application: Application, person: Person) -> None:
    client = Client()
    client.force_login(person.user)
    with hearing(application, person) as socket:
        content = export(*(f"Talk {number}" for number in range(300)))
        files = {"file": ("conversations.json", content, "application/json")}
        job = person.caller.http.post("imports/", files=files).raise_for_status().json()
        until(lambda: person.caller.get(f"imports/{job['id']}/")["status"] == "done", "the import is done")
        types = socket.settled()
    assert Conversation.objects.filter(owner=person.user).count() == 300
    assert 1 <= len(types) <= 60
    assert set(types) == {"CONVERSATIONS"}


def test_deletions_in_a_row_are_told_together(application: Application, person: Person) -> None:
    places = [person.caller.conversation() for _ in range(30)]
    with hearing(application, person) as socket:
        for place in places:
            deleted(person, place)
        assert 1 <= len(socket.settled()) < 30


def test_a_request_in_openais_protocol_changes_no_list(application: Application, person: Person) -> None:
    model = person.caller.http.get(application.url + "/v1/models").json()["data"][0]["id"]
    with hearing(application, person) as socket:
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
        person.caller.http.post(application.url + "/v1/chat/completions", json=body).raise_for_status()
        assert socket.settled() == []


def test_what_is_refused_and_rolled_back_is_not_told(application: Application, person: Person) -> None:
    place = person.caller.conversation()
    with hearing(application, person) as socket:
        assert person.caller.http.patch(f"conversations/{place}/", json={"title": " "}).status_code == 400
        assert person.caller.http.post(f"conversations/{place}/turns/", json={"text": " "}).status_code == 400
        assert socket.settled() == []


def test_a_task_that_changes_and_a_run_that_goes_on_are_told(
    application: Application, person: Person, stranger: Person, scripted_model_row: Model
) -> None:
    checklist = with_items(work(person, application, tool_model(scripted_model_row)), [script(*DONE)])
    with hearing(application, person) as socket, hearing(application, stranger) as other_socket:
        person.caller.http.patch(f"tasks/{checklist.items()[0]['id']}/", json={"breakpoint": True}).raise_for_status()
        assert socket.receive() == {"type": "TASKS"}
        run = checklist.begin()
        checklist.until(run["id"], "waiting")
        assert "TASKS" in socket.settled()
        assert other_socket.settled() == []


def test_an_invitation_is_told_to_whom_it_is_for_and_its_acceptance_to_who_sent_it(
    application: Application, person: Person, stranger: Person
) -> None:
    project = person.caller.post("projects/", {"name": "Contracts"}, expect=201)["id"]
    with hearing(application, person) as sender, hearing(application, stranger) as invited:
        sent = person.caller.post(f"projects/{project}/members/", {"username": stranger.username}, expect=201)
        assert invited.receive() == {"type": "INVITATIONS"}
        assert sender.settled() == []
        stranger.caller.post(f"invitations/{sent['id']}/accept/", expect=200)
        assert sender.receive() == {"type": "INVITATIONS"}
        assert invited.settled() == ["INVITATIONS"]


def withdraw(person: Person, stranger: Person, project: str, invitation: str) -> None:
    person.caller.http.delete(f"projects/{project}/invitations/{invitation}/").raise_for_status()


def decline(person: Person, stranger: Person, project: str, invitation: str) -> None:
    stranger.caller.post(f"invitations/{invitation}/decline/", expect=204)


def delete_project(person: Person, stranger: Person, project: str, invitation: str) -> None:
    person.caller.http.delete(f"projects/{project}/").raise_for_status()


def add_without_asking(person: Person, stranger: Person, project: str, invitation: str) -> None:
    admin = User.objects.create_superuser(uuid4().hex)
    add_member(user=admin, project=Project.objects.get(pk=project), person=stranger.user, role="reader")


@pytest.mark.parametrize("end", [withdraw, decline, delete_project, add_without_asking])
def test_an_invitation_that_is_gone_is_told_to_whom_it_was_for(
    application: Application, person: Person, stranger: Person, end: Callable[[Person, Person, str, str], None]
) -> None:
    project = person.caller.post("projects/", {"name": "Contracts"}, expect=201)["id"]
    with hearing(application, person) as sender, hearing(application, stranger) as invited:
        sent = person.caller.post(f"projects/{project}/members/", {"username": stranger.username}, expect=201)
        assert invited.receive() == {"type": "INVITATIONS"}
        end(person, stranger, project, sent["id"])
        assert invited.receive() == {"type": "INVITATIONS"}
        assert "INVITATIONS" not in sender.settled()


def test_a_program_hears_of_tasks_only_with_that_scope(application: Application, person: Person) -> None:
    types = {}
    for scopes in (["chat"], ["chat", "tasks"]):
        _, token = create_token(user=person.user, name="listener", scopes=scopes)
        with open_socket(application, {"Authorization": f"Bearer {token}"}) as opened:
            socket = Listener(opened, person)
            socket.settled()
            person.caller.post("tasks/", {"title": "Read", "level": "task"}, expect=201)
            person.caller.conversation()
            types[len(scopes)] = set(socket.settled())
    assert types == {1: {"CONVERSATIONS"}, 2: {"CONVERSATIONS", "TASKS"}}


def test_the_document_describes_what_is_told(client: Client, committed: None) -> None:
    messages = client.get("/api/v1/asyncapi/").json()["components"]["messages"]
    for news in News:
        assert messages[news]["payload"]["required"] == ["type"]
        assert messages[news]["summary"]
