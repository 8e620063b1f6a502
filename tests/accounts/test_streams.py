"""A stream of events ends with the token that it was opened with, however that has ended."""

import json

from django.utils import timezone

from accounts.models import ApiToken
from chat.models import Turn
from chat.turns.services import stop_turn
from tests.application import Application
from tests.conftest import Person
from tests.product import until

LONG = {"tokens": 5_000, "interval": 0.02}


def test_a_stream_of_events_ends_with_its_token(application: Application, person: Person) -> None:
    turn = person.caller.ask("Long.", LONG, person.caller.conversation())
    events = person.caller.events(turn["id"])
    assert next(events)["type"] == "RUN_STARTED"
    ApiToken.objects.filter(user=person.user).update(expires=timezone.now())
    assert [event["type"] for event in events][-1] == "TEXT_MESSAGE_CONTENT"
    stop_turn(user=person.user, turn=Turn.objects.get(pk=turn["id"]))


def test_a_stream_of_the_openai_protocol_ends_with_its_token_and_stops_its_turn(
    application: Application, person: Person
) -> None:
    question = {"role": "user", "content": f"script: {json.dumps(LONG)}"}
    http = application.http("/v1/", headers={"Authorization": f"Bearer {person.token}"})
    body = {"model": "scripted", "stream": True, "messages": [question]}
    with http.stream("POST", "chat/completions", json=body) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        ApiToken.objects.filter(user=person.user).update(expires=timezone.now())
        assert "data: [DONE]" not in list(lines)
    turn = Turn.objects.get(conversation__owner=person.user)
    until(lambda: Turn.objects.get(pk=turn.pk).status == "stopped", "the turn is stopped")
