"""The contract of the socket and of SSE: its document agrees with the frames that are sent."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from jsonschema import Draft7Validator, FormatChecker

from accounts.models import ApiToken
from accounts.realtime import News
from accounts.services import create_token, revoke_token
from chat.models import Turn
from chat.realtime import events
from chat.realtime.events import EventType
from llm.models import Model, Provider
from tests.chat.tool_servers import Diary
from tests.conftest import Person
from tests.product import ROOT, Product, until
from tests.sockets import Socket, open_socket, socket_of

SPECIFICATION = ROOT / "tests/node/node_modules/@asyncapi/specs/schemas/3.0.0.json"
product_test = pytest.mark.product


@pytest.fixture
def contract(client: Client, committed: None) -> Any:
    return client.get("/api/v1/asyncapi/").json()


def problems(contract: Any, frame: Any, *, by: str) -> list[str]:
    """Return how a frame differs from the document. `by` is its sender: the operation `send` is the server's."""
    named = {reference["$ref"].rpartition("/")[2] for reference in contract["operations"][by]["messages"]}
    if frame["type"] not in named:
        return [f"{frame['type']} is not of the operation {by}"]
    schema = contract["components"]["messages"][frame["type"]]["payload"]
    errors = Draft7Validator(schema, format_checker=FormatChecker()).iter_errors(frame)
    return [f"{frame['type']}: {error.message}" for error in errors]


@pytest.mark.skipif(
    not SPECIFICATION.exists(), reason="AsyncAPI's own schema is not installed: run make setup with npm"
)
def test_the_document_is_valid_asyncapi(contract: Any) -> None:
    errors = list(Draft7Validator(json.loads(SPECIFICATION.read_text())).iter_errors(contract))
    assert not errors, [f"{list(error.absolute_path)}: {error.message[:200]}" for error in errors]


def test_every_reference_of_the_document_leads_somewhere(contract: Any) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from [value["$ref"]] if "$ref" in value else []
            value = list(value.values())
        for each in value if isinstance(value, list) else ():
            yield from references(each)

    targets = set(references(contract))
    assert len(targets) > 40
    for reference in targets:
        place = contract
        for name in reference.removeprefix("#/").split("/"):
            place = place[name]


def test_the_document_has_every_type_that_there_is(contract: Any) -> None:
    described = set(contract["components"]["messages"])
    assert described == {*EventType, *events.FRAMES, *events.NOTICES, "QUEUED"}
    for schema in (message["payload"] for message in contract["components"]["messages"].values()):
        Draft7Validator.check_schema(schema)


class Checked:
    """A socket on which every frame, either way, must be as the document says."""

    def __init__(self, socket: Socket, contract: Any) -> None:
        self.socket = socket
        self.contract = contract
        self.seen: set[str] = set()

    def send(self, type_: str, **fields: Any) -> None:
        assert not problems(self.contract, {"type": type_, **fields}, by="receive")
        self.socket.send(type_, **fields)

    def until(self, *types: str) -> list[Any]:
        frames = self.socket.until(*types)
        wrong = [problem for frame in frames for problem in problems(self.contract, frame, by="send")]
        assert not wrong
        self.seen |= {frame["type"] for frame in frames}
        return frames


@pytest.mark.smoke
@product_test
def test_what_the_socket_carries_is_as_the_document_says(
    product: Product, person: Person, guarded: Diary, contract: Any, scripted_model_row: Model
) -> None:
    caller = person.caller
    nowhere = Provider.objects.create(name=uuid4().hex, base_url="http://127.0.0.1:9/v1")
    down = Model.objects.create(provider=nowhere, name="down", fallback=scripted_model_row)
    with socket_of(product, person) as raw:
        socket = Checked(raw, contract)
        socket.send("ping", id="a")
        socket.send("watch", id=1, conversation=guarded.place)
        socket.until("STATE")
        call = {"reasoning": "Let me see.", "tool_calls": [guarded.call("note", text="one")]}
        turn = guarded.ask("Write.", call, {"text": "Written down.", "usage": {"input": 5, "output": 3}})
        socket.until("TURN")
        socket.send("subscribe", id=2, turn=turn["id"], after_seq=0)
        asking = socket.until("TOOL_CALL_APPROVAL", "RUN_FINISHED")[-1]
        caller.post(f"turns/{turn['id']}/approvals/", {"call": asking["call"], "allow": True})
        socket.until("RUN_FINISHED")
        long = caller.ask("Long.", {"tokens": 5000, "interval": 0.02}, caller.conversation())
        socket.send("subscribe", id=3, turn=long["id"])
        socket.until("TEXT_MESSAGE_CONTENT")
        socket.send("stop", id=4, turn=long["id"])
        socket.until("RUN_STOPPED")
        no = {"error": {"status": 400, "message": "no"}}
        broken = caller.ask("Fail.", no, caller.conversation(), models=[str(down.pk)])
        socket.send("subscribe", id=5, turn=broken["id"])
        socket.until("RUN_ERROR")
        raw.send("subscribe", id=6, turn=turn["id"], after_seq=-1)
        socket.until("ERROR")
        name = product.model.set_script(uuid4().hex, {"text": "It is the moment.</think>\n\nYes."})
        untagged = Model.objects.create(provider=scripted_model_row.provider, name=name)
        late = caller.ask("Now?", None, caller.conversation(), models=[str(untagged.pk)])
        socket.send("subscribe", id=10, turn=late["id"])
        socket.until("RUN_FINISHED")
        place = caller.conversation()
        socket.send("send", id=7, conversation=place, text="Hello", key="k")
        socket.until("ACK")
        first = Turn.objects.get(conversation_id=place)
        caller.ended(str(first.pk))
        file = caller.http.post("files/", files={"file": ("rain.txt", b"It rains.")}).json()["id"]
        until(lambda: caller.get(f"files/{file}/")["status"] == "ready", "the file is read")
        again = {"conversation": place, "text": "Again", "parent": str(first.answer_id), "files": [file]}
        socket.send("send", id=8, **again, models=[str(scripted_model_row.pk)])
        socket.until("ACK")
        second = Turn.objects.filter(conversation_id=place).exclude(pk=first.pk).get()
        assert second.user_message.parent_id == first.answer_id
        assert [str(each.file_id) for each in second.user_message.attachments.all()] == [file]
        raw.send("send", id=9, **{**again, "files": "all"})
        assert socket.until("ERROR")[-1]["code"] == "bad_list"
    # Tested below, and with what they are about.
    rest = {"CITATION", "CITATION_CHECK", "TOOL_CALL_PROGRESS", "TITLE", "NEXT", "MARKS", "SNAPSHOT", *News}
    assert {*EventType, *events.NOTICES} - rest <= socket.seen


@pytest.mark.smoke
@product_test
def test_what_sse_carries_is_what_the_socket_carries(product: Product, person: Person, contract: Any) -> None:
    caller = person.caller
    file = caller.http.post("files/", files={"file": ("rain.txt", b"In Conwy it rains.")}).json()
    until(lambda: caller.get(f"files/{file['id']}/")["status"] == "ready", "the file is read")
    turn = caller.ask("Cite.", {"text": "In Conwy it rains on all days of May [1]."}, files=[file["id"]])
    events = list(caller.events(turn["id"]))
    assert not [problem for event in events for problem in problems(contract, event, by="send")]
    assert {"CITATION", "CITATION_CHECK"} <= {event["type"] for event in events}
    [snapshot] = caller.events(turn["id"], after=len(events))
    assert snapshot["type"] == "SNAPSHOT"
    assert not problems(contract, snapshot, by="send")
    description = caller.get("schema/?format=json")
    place = description["paths"]["/api/v1/turns/{id}/events/"]["get"]["responses"]["200"]["content"]
    assert place["text/event-stream"]["x-event-schema"]["$ref"] == "#/components/schemas/TurnEvent"
    assert place["text/event-stream"]["schema"]["$ref"] == "#/components/schemas/TurnEventMessage"
    described = Draft7Validator(description["components"]["schemas"]["TurnEvent"], format_checker=FormatChecker())
    assert all(described.is_valid(event) for event in [*events, snapshot])


def test_a_frame_with_a_member_that_is_not_described_would_be_noticed(contract: Any) -> None:
    turn = "0197d1f0-5c1e-7a30-9b1f-3f6c2b8d4e21"
    fine = {"type": "RUN_STOPPED", "turn": turn, "seq": 3, "ts": 1.5}
    assert not problems(contract, fine, by="send")
    for wrong in ({**fine, "more": 1}, {**fine, "seq": 0}, {**fine, "turn": "x"}, {**fine, "type": "stop"}):
        assert problems(contract, wrong, by="send")


def flood(socket: Socket) -> None:
    for _ in range(200):
        socket.connection.send('{"type": "ping"}')


CLOSED_BY: dict[int, Callable[[Socket], object]] = {
    4400: lambda socket: socket.connection.send("not json"),
    4403: lambda socket: socket.send("watch", conversation="0197d1f0-5c1e-7a30-9b1f-3f6c2b8d4e21"),
    4413: lambda socket: socket.send("ping", padding="x" * 600_000),
    4429: flood,
}


@product_test
def test_the_close_codes_are_those_of_the_document(product: Product, person: Person, contract: Any) -> None:
    described = {int(code) for code in contract["channels"]["socket"]["x-close-codes"]}
    assert described == {1011, 1012, 4401, 4430, *CLOSED_BY}
    for code, wrong in CLOSED_BY.items():
        with socket_of(product, person) as socket:
            wrong(socket)
            assert socket.close_code() == code
    with socket_of(product, None) as stranger:
        assert stranger.close_code() == 4401


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@product_test
def test_a_program_opens_the_socket_with_its_token_and_without_an_origin(product: Product, person: Person) -> None:
    place = person.caller.conversation()
    with open_socket(product, bearer(person.token)) as socket:
        socket.send("watch", id=1, conversation=place)
        assert socket.until("ACK")[-1]["id"] == 1


@product_test
def test_a_token_that_may_not_chat_or_is_unknown_is_not_signed_in(product: Product, person: Person) -> None:
    _, files = create_token(user=person.user, name="files", scopes=["files"])
    for token in (files, "gh_nothing"):
        with open_socket(product, bearer(token)) as socket:
            assert socket.close_code() == 4401
    with pytest.raises(Exception, match="403"), open_socket(product, bearer("")):  # as of a page without an origin
        pass


@product_test
def test_a_session_without_an_origin_gets_no_socket_though_a_token_does(product: Product, person: Person) -> None:
    client = Client()
    client.force_login(person.user)
    cookie = {"Cookie": f"sessionid={client.cookies['sessionid'].value}"}
    with pytest.raises(Exception, match="403"), open_socket(product, cookie):
        pass


@product_test
def test_a_socket_closes_when_its_token_is_revoked(product: Product, person: Person) -> None:
    row, token = create_token(user=person.user, name="short", scopes=["chat"])
    with open_socket(product, bearer(token)) as socket:
        socket.send("ping", id=1)
        socket.until("ACK")
        revoke_token(user=person.user, token=ApiToken.objects.get(pk=row.pk))
        assert socket.close_code() == 4401
