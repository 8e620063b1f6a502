"""Results of tools that are long: planned by the room that is left, kept whole, read on in, gone with their place."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client

from accounts.models import Limit
from chat.conversations.erasing import erase
from chat.models import Conversation, ToolResult
from files.services import stored_bytes
from llm.models import Model, ToolServer
from llm.tokens import CATCH_ALL, NamedTokenizer
from personas.models import Persona
from tests.application import Application
from tests.conftest import Person
from tests.llm.misbehaving_server import BAD_SCHEMAS, BROKEN, Misbehaving, tool

MARKER = re.compile(
    r"\n\[… (\d+) tokens left out; read_result with “([0-9a-f-]{36})” gives any part of the whole …\]\n"
)
ANSWER = {"text": "I have read it."}
COUNT = NamedTokenizer(CATCH_ALL).count


@pytest.fixture
def model_of(scripted_model_row: Model) -> Callable[[int], Model]:
    """A model that calls tools, of a window."""

    def make(window: int) -> Model:
        name = f"scripted-{uuid4().hex[:8]}"
        return Model.objects.create(
            provider=scripted_model_row.provider, name=name, context_window=window, tools=True, tokenizer=CATCH_ALL
        )

    return make


@pytest.fixture
def served(application: Application, committed: None, tmp_path: Path) -> Iterator[Callable[..., ToolServer]]:
    """The row of a server that misbehaves so, as a process; or at an address."""
    rows: list[ToolServer] = []

    def make(behaviour: Misbehaving | None = None, url: str = "") -> ToolServer:
        command = behaviour.as_process(tmp_path) if behaviour is not None else ""
        kind = "stdio" if command else "http"
        name = f"o{uuid4().hex[:8]}"
        address = {"kind": kind, "command": command, "base_url": url}
        rows.append(ToolServer.objects.create(name=name, approval_required=False, **address))
        return rows[-1]

    yield make
    for row in rows:
        row.delete()


def place_of(person: Person, *tools: str) -> str:
    persona = Persona.objects.create(owner=person.user, name="Odd", instructions="Help.", tools=list(tools))
    return str(person.caller.post("conversations/", {"persona": str(persona.pk)}, expect=201)["id"])


def calls(*named: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": dict(arguments)} for name, arguments in named]}


class Turns:
    """Turns in one conversation, and the requests to the model of each."""

    def __init__(self, application: Application, person: Person, place: str, model: Model) -> None:
        self.application, self.person, self.place, self.model = application, person, place, model

    def ask(self, *steps: Mapping[str, Any]) -> dict[str, Any]:
        self.mark = uuid4().hex
        script, models = {"steps": list(steps)}, [str(self.model.pk)]
        turn = self.person.caller.ask(f"Do it {self.mark}", script, self.place, models=models)
        ended: dict[str, Any] = self.person.caller.ended(turn["id"])
        assert ended["status"] == "done", ended["error"]
        return ended

    def bodies(self) -> list[dict[str, Any]]:
        return [record.body for record in self.application.model.finished(self.mark)]

    def results(self, call: int) -> list[str]:
        """Return the contents of the tools' messages in a call."""
        return [each["content"] for each in self.bodies()[call]["messages"] if each["role"] == "tool"]

    def stored_result(self) -> ToolResult:
        return ToolResult.objects.get(conversation=UUID(self.place))

    def plan(self) -> dict[str, Any]:
        draft = {"text": "And then?", "model": str(self.model.pk)}
        return dict(self.person.caller.post(f"conversations/{self.place}/plan/", draft, expect=200))

    def report(self, turn: Mapping[str, Any], call: int | None = None) -> dict[str, Any]:
        return dict(self.person.caller.get(f"turns/{turn['id']}/report/{f'?call={call}' if call else ''}"))


def of_results(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [each for each in report["sources"] if each.get("role") == "result"]


BIG = Misbehaving([tool("log")], results={"log": {"size": 200_000}})


def test_a_long_result_is_cut_by_the_room_kept_whole_and_read_on_in(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    row = served(BIG)
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(8_000))
    turns.ask(calls((f"{row.name}__log", {})), ANSWER)
    [cut] = turns.results(1)
    [(left_out, pk)] = MARKER.findall(cut)
    stored_row = ToolResult.objects.get(pk=pk)
    whole = stored_row.text
    assert whole.startswith("FIRST\n") and whole.endswith("\nLAST") and len(whole) > 190_000
    assert cut.startswith("FIRST\n") and cut.endswith("\nLAST")
    head, tail = MARKER.sub("\0", cut).split("\0")
    assert COUNT(head) + COUNT(tail) + int(left_out) == COUNT(whole)
    assert 2_000 < COUNT(cut) <= 4_000

    turn = turns.ask(
        calls((f"{row.name}__log", {})),
        calls(("read_result", {"result": pk, "start": 100_000}), ("read_result", {"result": pk, "start": 999_999})),
        calls(("read_result", {"result": "none"}), ("read_result", {"result": str(uuid4())})),
        ANSWER,
    )
    _, part, beyond = turns.results(2)
    assert whole[100_000:103_000] in part and f"characters 100000 to 112000 of {len(whole)}" in part
    assert beyond == f"The result ends at character {len(whole)}."
    *_, no_id, unknown = turns.results(-1)
    assert "must be the id" in no_id and "There is no such result" in unknown
    assert all(len(MARKER.findall(each)) <= 1 for each in turns.results(-1))
    shortened = [each for each in of_results(turns.report(turn, 2)) if each["state"] == "shortened"]
    assert [each["cut_from"] for each in shortened] == [COUNT(whole) + 4]


def test_one_marker_says_what_is_missing_of_the_whole_however_often_it_was_shortened(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    row = served(BIG)
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(8_000))
    log = calls((f"{row.name}__log", {}))
    turn = turns.ask(log, log, log, ANSWER)
    for call in range(len(turns.bodies())):
        for cut in turns.results(call):
            [(left_out, pk)] = MARKER.findall(cut)
            head, tail = MARKER.sub("\0", cut).split("\0")
            whole = ToolResult.objects.get(pk=pk).text
            assert COUNT(head) + COUNT(tail) + int(left_out) == pytest.approx(COUNT(whole), abs=3)
    assert {each["state"] for each in of_results(turns.report(turn))} == {"shortened"}
    assert {each["cut_from"] for each in of_results(turns.report(turn))} == {COUNT(whole) + 4}


def test_what_fits_goes_along_whole_however_long(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    row = served(Misbehaving([tool("log")], results={"log": {"size": 1_000_000}}))
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(1_000_000))
    turn = turns.ask(calls((f"{row.name}__log", {})), ANSWER)
    [text] = turns.results(1)
    assert len(text) > 900_000 and not MARKER.search(text) and text.endswith("LAST")
    [source] = of_results(turns.report(turn))
    assert source["state"] == "full" and source["tokens"] == COUNT(text) + 4


def test_results_of_one_step_share_the_room(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    behaviour = Misbehaving([tool("log"), tool("short")], results={"log": {"size": 200_000}, "short": "Brief."})
    row = served(behaviour)
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(16_000))
    turns.ask(calls(*((f"{row.name}__{name}", {}) for name in ("log", "short", "log"))), ANSWER)
    first, short, last = turns.results(1)
    assert short == "Brief."
    assert 1_000 < COUNT(first) < COUNT(last) < 8_000
    later = turns.ask(ANSWER)
    assert turns.results(0) == ["This tool result is no longer available."] * 3
    assert later["status"] == "done"


def test_the_page_the_panel_and_the_export_say_how_long_it_really_is(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    row = served(BIG)
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(8_000))
    turn = turns.ask(calls((f"{row.name}__log", {})), ANSWER)
    stored_row = turns.stored_result()
    tokens = f"{COUNT(stored_row.text):,}"
    client = Client()
    client.force_login(person.user)
    page = client.get(f"/c/{turns.place}/").content.decode()
    assert f"the whole has {tokens} tokens" in page and f"/results/{stored_row.pk}/" in page
    assert client.get(f"/results/{stored_row.pk}/").content.decode() == stored_row.text
    panel = client.get(f"/turns/{turn['id']}/report/").content.decode()
    assert f"of {COUNT(stored_row.text) + 4:,} tokens" in panel
    markdown = client.get(f"/c/{turns.place}/export.md").content.decode()
    assert f"The result of {row.name}__log was shortened for the model; it has {tokens} tokens" in markdown
    stored = client.get(f"/c/{turns.place}/export.json").json()["messages"][-1]["parts"][-2]["stored"]
    assert stored["characters"] == stored["kept"] == len(stored_row.text) and stored["id"] == str(stored_row.pk)
    stranger = Client()
    stranger.force_login(type(person.user).objects.create_user(f"s{uuid4().hex[:8]}"))
    assert stranger.get(f"/results/{stored_row.pk}/").status_code == 404


def test_a_kept_result_counts_as_stored_and_goes_with_its_conversation(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    row = served(BIG)
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(8_000))
    turns.ask(calls((f"{row.name}__log", {})), ANSWER)
    stored_row = turns.stored_result()
    assert stored_bytes(person.user) == stored_row.size == len(stored_row.text.encode())
    erase(Conversation.objects.get(pk=turns.place))
    assert not ToolResult.objects.filter(pk=stored_row.pk).exists() and stored_bytes(person.user) == 0


def test_a_result_for_which_there_is_no_room_to_keep_is_shortened_all_the_same(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    row = served(BIG)
    Limit.objects.create(user=person.user, unit=Limit.Unit.STORAGE, amount=1_000)
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(8_000))
    turn = turns.ask(calls((f"{row.name}__log", {})), ANSWER)
    [cut] = turns.results(1)
    assert re.search(r"\n\[… \d+ tokens left out …\]\n", cut) and cut.endswith("\nLAST")
    assert not ToolResult.objects.filter(conversation=UUID(turns.place)).exists()
    assert any("could not be stored" in note for note in turns.report(turn, 1)["notes"])


def test_what_is_beyond_what_is_kept_is_named(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    row = served(Misbehaving([tool("log")], results={"log": {"size": 5_000_000}}))
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(8_000))
    turn = turns.ask(calls((f"{row.name}__log", {})), ANSWER)
    stored_row = turns.stored_result()
    assert len(stored_row.text) == 4_000_000 and stored_row.characters > 4_500_000
    assert turns.results(1)[0].endswith("\nLAST")
    [note] = [each for each in turns.report(turn, 1)["notes"] if "characters" in each]
    assert f"{stored_row.characters:,} characters" in note and "first 4,000,000 are stored" in note


# What goes wrong with a server, whether the answer is written all the same, and what its report says.


def test_a_turn_goes_on_with_the_good_tools_of_a_server_and_names_the_broken_one(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    tools = [tool(name, schema) if schema else {"name": name} for name, schema in (BAD_SCHEMAS | BROKEN).items()]
    row = served(Misbehaving([*tools, tool("good")]))
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(64_000))
    turn = turns.ask(calls((f"{row.name}__good", {})), ANSWER)
    assert turns.results(1) == ["Done."]
    offered = [each["function"]["name"] for each in turns.bodies()[0]["tools"]]
    assert offered == ["read_result", *sorted(f"{row.name}__{name}" for name in (*BAD_SCHEMAS, "good"))]
    [note] = turns.report(turn)["notes"]
    assert f"{row.name}__broken" in note and "has the type array" in note
    planned = turns.plan()
    assert note in planned["notes"]


def test_a_tool_that_the_provider_refuses_is_left_out_and_the_report_says_so(
    application: Application, person: Person, served: Callable[..., ToolServer], scripted_model_row: Model
) -> None:
    strange = tool("strange", {"type": "object", "properties": {"a b": {"type": "string"}}})  # Anthropic refuses that
    row = served(Misbehaving([tool("good"), strange]))
    provider = type(scripted_model_row.provider).objects.create(
        name=f"a{uuid4().hex[:8]}", kind="anthropic", base_url=application.model.url
    )
    name = f"scripted-{uuid4().hex[:8]}"
    model = Model.objects.create(provider=provider, name=name, context_window=64_000, tools=True)
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model)
    turn = turns.ask(calls((f"{row.name}__good", {})), ANSWER)
    report = turns.report(turn)
    assert report["tools"] == ["read_result", f"{row.name}__good"]
    note = f"The model's provider refuses these tools, so they were not sent: {row.name}__strange."
    first = turns.report(turn, 1)
    assert report["notes"] == first["notes"] == [note]
    assert report["tools_tokens"] == first["tools_tokens"] < turns.plan()["tools_tokens"]
    model.refresh_from_db()
    assert model.learnt_window is None


def test_a_turn_goes_on_without_a_server_that_fails(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    good, odd = Misbehaving([tool("good")]), Misbehaving([])
    doors: list[AbstractContextManager[str]] = [odd.over_http(status=401), odd.over_http(status=405)]
    with doors[0] as denied, doors[1] as events_only:
        rows = [served(url=denied), served(url=events_only), served(good)]
        turns = Turns(application, person, place_of(person, *(f"{row.name}__*" for row in rows)), model_of(64_000))
        turn = turns.ask(calls((f"{rows[2].name}__good", {})), ANSWER)
    assert turns.results(1) == ["Done."]
    notes = turns.report(turn)["notes"]
    assert len(notes) == 2 and all("cannot be reached or broke the connection" in note for note in notes)


def test_a_turn_goes_on_without_a_server_that_hangs(
    application: Application,
    person: Person,
    served: Callable[..., ToolServer],
    model_of: Callable[[int], Model],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [served(Misbehaving([tool("good")], hangs="tools/list")), served(Misbehaving([tool("good")]))]
    monkeypatch.setattr("llm.tools.mcp.LIST_TIMEOUT", 2.0)
    turns = Turns(application, person, place_of(person, *(f"{row.name}__*" for row in rows)), model_of(64_000))
    turn = turns.ask(calls((f"{rows[1].name}__good", {})), ANSWER)
    assert turns.results(1) == ["Done."]
    assert turns.report(turn)["notes"] == [f"{rows[0].name} did not list its tools within 2 seconds."]


def test_a_result_of_a_deleted_message_is_read_no_more(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    row = served(BIG)
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(8_000))
    turns.ask(calls((f"{row.name}__log", {})), ANSWER)
    stored_row = turns.stored_result()
    question = stored_row.message.parent_id
    assert isinstance(question, UUID)
    person.caller.http.patch(f"messages/{question}/", json={"mark": "excluded"}).raise_for_status()
    turns.ask(calls(("read_result", {"result": str(stored_row.pk)})), ANSWER)
    assert "There is no such result" in turns.results(1)[-1]


def test_a_kept_page_is_read_on_in_under_the_number_that_it_is_cited_by(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    row = served(BIG)
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(64_000))
    turn = turns.ask(ANSWER)
    conversation = Conversation.objects.get(pk=turns.place)
    Conversation.objects.filter(pk=turns.place).update(documents={"https://example.org/": 7})
    text = "The tide is high. " * 1_000
    stored_row = ToolResult.objects.create(
        owner=person.user,
        conversation=conversation,
        message_id=turn["message"],
        tool="open_url",
        title="Tides",
        url="https://example.org/",
        text=text,
        size=len(text),
        characters=len(text),
    )
    turns.ask(calls(("read_result", {"result": str(stored_row.pk), "start": 12_000})), ANSWER)
    [document] = json.loads(turns.results(1)[-1])["documents"]
    assert (document["document"], document["title"]) == (7, "Tides")
    assert document["contents"] == text[12_000:]
    assert "characters 12000 to 18000 of 18000, the end of what is kept" in document["metadata"]
