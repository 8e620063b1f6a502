"""The page's WebSocket, spoken to as a browser does."""

from typing import Any
from uuid import UUID

import pytest
from websockets.exceptions import InvalidStatus

from chat.models import Turn
from chat.realtime.events import FRAMES
from tests.application import Application
from tests.conftest import Person
from tests.product import Caller
from tests.sockets import open_socket, socket_of


def test_a_socket_delivers_the_answer_and_acknowledges_every_frame(application: Application, person: Person) -> None:
    place = person.caller.conversation()
    with socket_of(application, person) as socket:
        socket.send("watch", id=1, conversation=place)
        assert [frame["type"] for frame in socket.until("ACK")] == ["STATE", "ACK"]
        turn = person.caller.ask("Count.", {"tokens": 30, "interval": 0.005, "ttft": 0.3}, place)
        started = socket.until("TURN")[-1]
        assert (started["turn"], started["message"]) == (turn["id"], turn["message"])
        socket.send("subscribe", id=2, turn=turn["id"], after_seq=0)
        frames = socket.until("RUN_FINISHED")
    events = [frame for frame in frames if frame.get("seq")]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert {"type": "ACK", "id": 2} in frames


def test_two_tabs_see_the_same_and_a_closed_one_changes_nothing(application: Application, person: Person) -> None:
    turn = person.caller.ask("Count.", {"tokens": 60, "interval": 0.01})
    with socket_of(application, person) as closed:
        closed.send("subscribe", turn=turn["id"], after_seq=0)
        closed.until("TEXT_MESSAGE_CONTENT")
    seen = []
    for _ in range(2):
        with socket_of(application, person) as tab:
            tab.send("subscribe", turn=turn["id"], after_seq=0)
            seen.append([frame for frame in tab.until("RUN_FINISHED") if frame.get("seq")])
    assert seen[0] == seen[1]
    assert person.caller.turn(turn["id"])["status"] == "done"


def test_stop_over_the_socket_stops_the_answer(application: Application, person: Person) -> None:
    turn = person.caller.ask("Long.", {"tokens": 5000, "interval": 0.02})
    with socket_of(application, person) as socket:
        socket.send("subscribe", turn=turn["id"], after_seq=0)
        socket.until("TEXT_MESSAGE_CONTENT")
        socket.send("stop", id=7, turn=turn["id"])
        assert socket.until("RUN_STOPPED")


def test_a_message_can_be_sent_over_the_socket(application: Application, person: Person) -> None:
    place = person.caller.conversation()
    with socket_of(application, person) as socket:
        socket.send("watch", id=1, conversation=place)
        socket.send("send", id=2, conversation=place, text="Hello")
        assert {"type": "ACK", "id": 2} in socket.until("ACK") + socket.until("TURN")


def test_an_answer_is_continued_and_regenerated_over_the_socket(application: Application, person: Person) -> None:
    script = {"steps": [{"text": "Once upon a time", "finish": "length"}, {"text": " there was a king."}]}
    turn = person.caller.ask("Tell me a story.", script)
    person.caller.ended(turn["id"])
    with socket_of(application, person) as socket:

        def answered(id_: int, type_: str, message: str, key: Any) -> Any:
            socket.send(type_, id=id_, message=message, key=key)
            return socket.until("ACK", "ERROR")[-1]

        for number, type_ in enumerate(("continue", "regenerate"), 2):
            for _ in "twice":  # a repeat does no harm
                assert answered(1, type_, turn["message"], type_) == {"type": "ACK", "id": 1}
            turns = Turn.objects.filter(conversation=turn["conversation"]).order_by("pk")
            assert turns.count() == number
            more = person.caller.ended(str(turns[number - 1].pk))
            assert more["status"] == "done"
        assert answered(2, "continue", more["user_message"], None)["code"] == "nothing_to_continue"
        assert answered(3, "continue", turn["message"], ["no key"])["code"] == "bad_idempotency_key"


@pytest.mark.parametrize(
    "frame", ["not json", "[]", '{"type": "dance"}', '{"no": "type"}', '{"type": []}', "[" * 100_000]
)
def test_a_bad_frame_closes_the_socket_with_4400(application: Application, person: Person, frame: str) -> None:
    with socket_of(application, person) as socket:
        socket.connection.send(frame)
        assert socket.close_code() == 4400


def test_a_frame_of_too_many_values_is_an_error_and_not_the_end(application: Application, person: Person) -> None:
    with socket_of(application, person) as socket:
        socket.connection.send(f'{{"type": "ping", "id": 1, "x": [{"{}," * 150_000}0]}}')
        error = socket.receive()
        assert (error["type"], error["id"], error["code"]) == ("ERROR", None, "too_many_values")
        text = "{},[]," * 50_000
        socket.send("ping", id=text)
        assert socket.receive() == {"type": "ACK", "id": text}


def test_bytes_close_the_socket_with_4400(application: Application, person: Person) -> None:
    with socket_of(application, person) as socket:
        socket.connection.send(b"\x00\x01")
        assert socket.close_code() == 4400


def test_nobody_signed_in_is_closed_with_4401(application: Application) -> None:
    with socket_of(application, None) as socket:
        assert socket.close_code() == 4401


def test_somebody_elses_turn_is_not_found_and_closes_with_4403(
    application: Application, person: Person, stranger: Person
) -> None:
    turn = person.caller.ask("Mine.", {"text": "secret answer"})
    frames: list[dict[str, Any]] = [
        {"type_": "subscribe", "turn": turn["id"], "after_seq": 0},
        {"type_": "stop", "turn": turn["id"]},
        {"type_": "watch", "conversation": turn["conversation"]},
        {"type_": "send", "conversation": turn["conversation"], "text": "x"},
        {"type_": "subscribe", "turn": "nonsense"},
        {"type_": "continue", "message": turn["message"]},
        {"type_": "regenerate", "message": turn["message"]},
        {"type_": "mark", "message": turn["message"], "mark": "pinned"},
    ]
    assert {frame["type_"] for frame in frames} == {*FRAMES} - {"ping"}
    for frame in frames:
        with socket_of(application, stranger) as socket:
            socket.send(**frame)
            assert socket.receive()["code"] == "not_found"
            assert socket.close_code() == 4403


def test_a_wrong_sequence_number_is_an_error_and_not_the_end(
    application: Application, caller: Caller, person: Person
) -> None:
    turn = caller.ask("Hello.")
    with socket_of(application, person) as socket:
        for after in (-1, "3", True, 1.5, None, 10**30):
            socket.send("subscribe", id=1, turn=turn["id"], after_seq=after)
            assert socket.receive()["code"] == "bad_sequence"
        socket.send("ping", id=2)
        assert socket.receive() == {"type": "ACK", "id": 2}


def test_an_unknown_member_of_a_frame_is_refused_with_the_names_that_exist(
    application: Application, person: Person
) -> None:
    place = person.caller.conversation()
    with socket_of(application, person) as socket:
        socket.send("send", id=1, conversation=place, text="Hello", file=["x"])
        error = socket.until("ERROR")[-1]
        assert (error["id"], error["code"]) == (1, "unknown_member") and "files" in error["detail"]
        socket.send("ping", id=2)
        assert socket.until("ACK")[-1]["id"] == 2
    assert not Turn.objects.filter(conversation=UUID(place)).exists()


def test_an_address_without_a_socket_is_refused(application: Application) -> None:
    with (
        pytest.raises(InvalidStatus) as refused,
        open_socket(application, {"Authorization": "Bearer x"}, "/ws/nowhere/"),
    ):
        pass
    assert refused.value.response.status_code == 403


def test_a_frame_that_is_too_large_closes_the_socket_with_4413(application: Application, person: Person) -> None:
    with socket_of(application, person) as socket:
        socket.send("ping", padding="x" * 600_000)
        assert socket.close_code() == 4413


def test_frames_without_end_close_the_socket_with_4429(application: Application, person: Person) -> None:
    with socket_of(application, person) as socket:
        for number in range(200):
            socket.connection.send(f'{{"type": "ping", "id": {number}}}')
        assert socket.close_code() == 4429


def test_a_page_of_another_port_gets_no_socket(application: Application, person: Person) -> None:
    with pytest.raises(Exception, match="403"), socket_of(application, person, origin="http://127.0.0.1:1"):
        pass


def test_a_turn_is_marked_over_the_socket_and_other_tabs_hear_of_it(application: Application, person: Person) -> None:
    place = person.caller.conversation()
    turn = person.caller.ended(person.caller.ask("One.", {"text": "Said."}, place)["id"])
    with socket_of(application, person) as tab, socket_of(application, person) as other:
        for each in (tab, other):
            each.send("watch", id=1, conversation=place)
            each.until("ACK")
        tab.send("mark", id=2, message=turn["message"], mark="pinned")
        assert other.until("MARKS")[-1]["message"] == turn["user_message"]
        assert {"type": "ACK", "id": 2} in tab.until("ACK")
        tab.send("mark", id=3, message=turn["message"], mark="loved")
        assert tab.until("ERROR")[-1]["code"] == "bad_mark"
    assert person.caller.get(f"messages/{turn['message']}/")["mark"] == "pinned"
