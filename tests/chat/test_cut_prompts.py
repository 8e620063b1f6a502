"""Servers that do not read all that they are sent are named under the answer; how others count is no false alarm."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from chat.conversations import titles
from chat.conversations.export import export
from chat.models import Conversation, Turn
from core import background
from llm.models import Model, Provider
from tests.application import Application
from tests.conftest import Person
from tests.product import until
from tests.scripted_model import ScriptedModel


@pytest.fixture
def model(application: Application) -> Model:
    provider = Provider.objects.create(name=uuid4().hex, kind="openai", base_url=application.model.openai_url)
    return Model.objects.create(provider=provider, name="llama3.2:3b", context_window=32_000)


def test_a_server_that_read_less_is_named_under_its_first_answer_and_its_window_is_learnt(
    person: Person, model: Model
) -> None:
    script = {"text": "I know nothing of it.", "usage": {"input": 3_024, "output": 5}}
    question = "word " * 9_000
    asked = person.caller.ask(question, script, models=[str(model.pk)])
    assert person.caller.ended(asked["id"])["status"] == "done"
    turn = Turn.objects.get(pk=asked["id"])
    [call] = turn.report["calls"]
    assert 5_900 < turn.context_unread == call["unread"] < 6_100
    assert call["notes"][-1].startswith(f"The server read 3,024 of {3_024 + turn.context_unread:,} tokens")

    def learnt() -> bool:
        model.refresh_from_db()
        return model.learnt_window == 4_096

    until(learnt, "the window is learnt")
    assert model.ratio_samples == 0


def test_a_server_that_read_all_is_not_suspected(person: Person, model: Model) -> None:
    asked = person.caller.ask("word " * 9_000, {"text": "Yes."}, models=[str(model.pk)])
    person.caller.ended(asked["id"])
    turn = Turn.objects.get(pk=asked["id"])
    assert (turn.context_unread, turn.report["calls"][0]["notes"]) == (0, [])


QUESTION = "word " * 9_000
CUT = {"text": "I know nothing of it.", "usage": {"input": 3_024, "output": 5}}


@pytest.fixture
def beside(application: Application) -> Iterator[ScriptedModel]:
    yield application.model
    application.model.say()


@pytest.mark.parametrize(
    ("says", "advice"),
    [
        ({"GET /api/ps": {"models": [{"name": "llama3.2:3b", "context_length": 6_000}]}}, "OLLAMA_CONTEXT_LENGTH"),
        ({"GET /props": {"default_generation_settings": {"n_ctx": 6_000}}}, "--context-shift"),
        ({}, "let an admin set this model's window"),
        ({"GET /props": {"default_generation_settings": {"n_ctx": -1}}}, "--context-shift"),
        ({"GET /props": ["nonsense"], "GET /api/ps": {"models": "nonsense"}}, "let an admin set this model's window"),
    ],
)
def test_what_to_do_fits_the_server_and_its_window_is_learnt(
    person: Person, model: Model, beside: ScriptedModel, says: dict[str, Any], advice: str
) -> None:
    beside.say(says)
    asked = person.caller.ask(QUESTION, CUT, models=[str(model.pk)])
    ended = person.caller.ended(asked["id"])
    assert ended["context_notice"].startswith("The server read 3,024 of 9,")
    assert advice in ended["context_notice"] and 5_900 < ended["context_unread"] < 6_100
    window = 6_000 if "6000" in str(says) else 4_096

    def learnt() -> bool:
        model.refresh_from_db()
        return model.learnt_window == window

    until(learnt, "the window is learnt")


def test_a_healthy_answer_asks_the_server_nothing_else(person: Person, model: Model, beside: ScriptedModel) -> None:
    beside.say({"GET /api/ps": {"models": []}})
    beside.forget()
    asked = person.caller.ask(QUESTION, {"text": "Yes."}, models=[str(model.pk)])
    person.caller.ended(asked["id"])
    assert not [record for record in beside.requests() if record.path in ("/api/ps", "/props")]


def test_an_answer_to_a_cut_prompt_is_marked_wherever_it_is_read(person: Person, model: Model) -> None:
    asked = person.caller.ask(QUESTION, CUT, models=[str(model.pk)])
    notice = person.caller.ended(asked["id"])["context_notice"]
    conversation = Conversation.objects.get(pk=asked["conversation"])
    assert notice in export(conversation, "md") and notice in export(conversation, "json")
    messages = person.caller.http.get(f"conversations/{conversation.pk}/messages/").json()["results"]
    assert [message["context_notice"] for message in messages] == [notice, None]


@pytest.mark.parametrize(("read", "titled"), [(300, False), (5_000, True)])
def test_a_title_from_a_cut_prompt_is_thrown_away(person: Person, model: Model, read: int, titled: bool) -> None:
    title = uuid4().hex
    script = {"tokens": 1_500, "title": {"text": title, "usage": {"input": read, "output": 4}}}
    asked = person.caller.ask("Go.", script, models=[str(model.pk)])
    person.caller.ended(asked["id"])
    background.submit(titles.write(UUID(asked["id"]))).result()
    assert (Conversation.objects.get(pk=asked["conversation"]).title == title) is titled
