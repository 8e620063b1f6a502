"""The workspace's model for the check of citations: the doubts that it adds and clears, and its failures."""

import json
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from django.test import Client

from chat.citations.judging import combine, parse_answer, question_about
from chat.citations.services import PartCheck, SentenceAndPassage
from chat.ledger.models import ModelCall
from chat.models import Conversation
from chat.models.parts import CitationDoubt
from core.errors import ModelError
from llm.models import Model
from tests.application import Application
from tests.chat.citing import ANSWER, SEARCH, ask
from tests.conftest import Person
from tests.llm.raw_server import RawServer, always, answer
from workspace import services as workspace
from workspace.models import Workspace

SENTENCES = [
    SentenceAndPassage(sentence="A box holds twelve.", evidence="A box holds nine."),
    SentenceAndPassage(sentence="B.", evidence="B."),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1: yes\n2: yes", [None, None]),
        ("1: No, the passage says nine.\n2. Yes.", ["the passage says nine.", None]),
        ("Here you are:\n\n- 2) yes\n- **1**: no – nine\n3: yes", ["nine", None]),
        ("1: no\n2: yes", ["", None]),
    ],
)
def test_its_answer_is_read_as_models_write_it(text: str, expected: list[str | None]) -> None:
    assert parse_answer(text, 2) == expected


@pytest.mark.parametrize("text", ["", "yes", "1: yes", "1: perhaps\n2: yes", "I cannot judge that."])
def test_an_answer_that_leaves_a_sentence_out_is_none(text: str) -> None:
    with pytest.raises(ModelError, match="yes or no for every sentence"):
        parse_answer(text, 2)


def test_it_gets_each_sentence_with_its_passage() -> None:
    assert question_about(SENTENCES).startswith(
        "1.\nSentence: A box holds twelve.\nPassage: A box holds nine.\n\n2.\nSentence"
    )


@pytest.fixture(autouse=True)
def _as_by_default(committed: None) -> Iterator[None]:
    yield
    Workspace.objects.all().delete()


def judge(row: Model, server: RawServer) -> Model:
    """Return a model behind a server of its own, which gives everybody the same answer."""
    provider = type(row.provider).objects.create(
        name=f"Judge {uuid4().hex[:8]}", kind="openai", base_url=f"http://127.0.0.2:{server.port}/v1"
    )
    model = Model.objects.create(provider=provider, name="judge", context_window=16_000)
    workspace.change_settings(user=None, fields={"citation_model": model})
    return model


def saying(text: str) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
    return answer(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", media_type="text/event-stream")


def test_what_it_does_not_find_carried_is_marked_and_it_is_a_call_in_the_ledger(
    application: Application, person: Person, place: str, caller_of_tools: Model
) -> None:
    with RawServer(always(saying("1: no, the passage speaks of another clause"))) as server:
        model = judge(caller_of_tools, server)
        turn = ask(person, place, caller_of_tools, "Which?", SEARCH, ANSWER)
        [body] = [json.loads(each) for each in server.bodies]
    check = turn["parts"][-1]["check"]
    words = "the passage speaks of another clause"
    assert (check["checked"], check["doubts"][0]["reasons"]) == (1, [{"reason": "model", "words": words}])
    assert "Sentence: The fee is limited by clause 7." in body["messages"][1]["content"]
    [call] = ModelCall.objects.filter(conversation_id=UUID(place), purpose="citations")
    assert (call.model, call.person) == (model, person.user)
    client = Client()
    client.force_login(person.user)
    leaf = Conversation.objects.get(pk=place).leaf_id
    shown = client.get(f"/messages/{leaf}/citations/{len(turn['parts']) - 1}/0/").content.decode()
    assert f"says that the passage does not carry it: “{words}”." in shown


@pytest.mark.parametrize("status", ["500 Internal Server Error", "200 OK"])
def test_without_its_answer_the_check_is_the_rules_and_the_report_says_so(
    application: Application, person: Person, place: str, caller_of_tools: Model, status: str
) -> None:
    whole = saying("I would rather not.") if status == "200 OK" else answer("{}", status=status)
    with RawServer(always(whole)) as server:
        model = judge(caller_of_tools, server)
        script = {"text": "By clause 7 the fee is limited to 900 euros a year [1]."}
        turn = ask(person, place, caller_of_tools, "Which?", SEARCH, script)
    assert [each["reasons"][0]["reason"] for each in turn["parts"][-1]["check"]["doubts"]] == ["number"]
    notes = person.caller.get(f"turns/{turn['id']}/report/")["notes"]
    assert notes[-2].startswith(f"The model {model.name}, which checks citations, failed (“")
    Model.objects.filter(pk=model.pk).update(enabled=False)
    turn = ask(person, place, caller_of_tools, "Again?", SEARCH, ANSWER)
    notes = person.caller.get(f"turns/{turn['id']}/report/")["notes"]
    assert notes == ["The model that checks citations was removed or switched off, so they were checked without it."]


def test_a_wrong_number_stays_what_the_model_clears_goes_and_what_it_adds_is_marked() -> None:
    def sentence(citation: int, *reasons: str) -> CitationDoubt:
        return {
            "citation": citation,
            "numbers": [1],
            "sentence": "",
            "evidence": "",
            "reasons": [{"reason": reason, "words": ""} for reason in reasons],
        }

    check = PartCheck(1, 4, [sentence(0, "number"), sentence(3, "absent")], [sentence(1), sentence(2)])
    combined = combine(check, [None, None, "nine", None])
    assert [(each["citation"], [one["reason"] for one in each["reasons"]]) for each in combined.doubts] == [
        (0, ["number"]),
        (1, ["model"]),
    ]
    assert (combined.checked, [each["citation"] for each in combined.supported]) == (4, [3, 2])
