"""Servers that do not read all that they are sent are named under the answer; how others count is no false alarm."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client

from chat.conversations import titles
from chat.conversations.export import export
from chat.ledger.models import ModelCall
from chat.models import Conversation, Turn
from core import background
from llm.learning import window_source
from llm.models import Model, Provider
from tests.application import Application
from tests.conftest import Person
from tests.product import until
from tests.scripted_model import ScriptedModel


@pytest.fixture
def model(application: Application) -> Model:
    provider = Provider.objects.create(name=uuid4().hex, kind="openai", base_url=application.model.openai_url)
    return Model.objects.create(provider=provider, name="llama3.2:3b", context_window=32_000)


def test_a_server_that_read_all_is_not_suspected(person: Person, model: Model) -> None:
    started = person.caller.ask("word " * 9_000, {"text": "Yes."}, models=[str(model.pk)])
    person.caller.ended(started["id"])
    turn = Turn.objects.get(pk=started["id"])
    assert (turn.context_unread, turn.report["calls"][0]["notes"]) == (0, [])


QUESTION = "word " * 9_000
CUT = {"text": "I know nothing of it.", "usage": {"input": 3_024, "output": 5}}


@pytest.fixture
def own_server(application: Application) -> Iterator[ScriptedModel]:
    yield application.model
    application.model.say()


SMALLER = {"GET /api/ps": {"models": [{"name": "llama3.2:3b", "context_length": 6_000}]}}


@pytest.mark.parametrize(
    ("says", "advice"),
    [
        (SMALLER, "OLLAMA_CONTEXT_LENGTH"),
        ({"GET /props": {"default_generation_settings": {"n_ctx": 6_000}}}, "--context-shift"),
    ],
)
def test_a_server_that_says_it_has_a_smaller_window_has_cut_and_its_window_is_learnt(
    person: Person, model: Model, own_server: ScriptedModel, says: dict[str, Any], advice: str
) -> None:
    own_server.say(says)
    started = person.caller.ask(QUESTION, CUT, models=[str(model.pk)])
    ended = person.caller.ended(started["id"])
    assert ended["context_notice"].startswith("The server read 3,024 of 9,")
    assert advice in ended["context_notice"] and 5_900 < ended["context_unread"] < 6_100

    def learnt() -> bool:
        model.refresh_from_db()
        return model.learnt_window == 6_000

    until(learnt, "the window is learnt")
    assert model.ratio_samples == 0 and window_source(model) == "served"


@pytest.mark.parametrize(
    "says",
    [
        {},
        {"GET /props": {"default_generation_settings": {"n_ctx": -1}}},
        {"GET /props": ["nonsense"], "GET /api/ps": {"models": "nonsense"}},
    ],
)
def test_a_low_count_alone_is_a_suspicion_shown_once_that_changes_nothing(
    person: Person, model: Model, own_server: ScriptedModel, says: dict[str, Any]
) -> None:
    own_server.say(says)
    Model.objects.filter(pk=model.pk).update(tokenizer="o200k_base")
    ended = person.caller.ended(person.caller.ask(QUESTION, CUT, models=[str(model.pk)])["id"])
    assert ended["context_notice"].startswith("The server reported 3,024 of 9,")
    assert "may count differently" in ended["context_notice"] and ended["context_unread"] == 0
    browser = Client()
    browser.force_login(person.user)
    page = browser.get(f"/c/{ended['conversation']}/").content.decode()
    assert page.count("may count differently") == 1 and "did not get the beginning" not in page
    more = {**CUT, "usage": {"input": 3_500, "output": 5}}
    again = person.caller.ask(QUESTION, more, ended["conversation"], models=[str(model.pk)])
    second = person.caller.ended(again["id"])
    assert (second["context_notice"], second["context_unread"]) == ("", 0)
    report = person.caller.get(f"turns/{again['id']}/report/")
    assert report["window"] == 32_000 and report["window_source"] == "known"
    assert not any(source.get("reason") for source in report["sources"])  # nothing is left out

    def counted() -> bool:
        model.refresh_from_db()
        return len(model.reported_counts.get("calls", ())) == 2

    until(counted, "both are counted")
    assert (model.learnt_window, model.window, model.ratio_samples) == (None, 32_000, 0)


def test_three_messages_of_a_careless_server_make_no_model_smaller(person: Person, model: Model) -> None:
    """The server reports only uncached tokens: 800, then 700, then 700 with the cached ones in another field."""
    Model.objects.filter(pk=model.pk).update(tokenizer="o200k_base")
    place = person.caller.conversation()
    for usage in ({"input": 800}, {"input": 700}, {"input": 700, "cached": 1_400}, {"input": 700}):
        script = {"text": "Yes.", "usage": {"output": 2, **usage}}
        started = person.caller.ask("word " * 650, script, place, models=[str(model.pk)])
        assert person.caller.ended(started["id"])["context_unread"] == 0

    def counted() -> bool:
        model.refresh_from_db()
        return len(model.reported_counts.get("calls", ())) == 4

    until(counted, "all are counted")
    assert (model.learnt_window, model.window) == (None, 32_000)


def test_a_healthy_answer_asks_the_server_nothing_else(person: Person, model: Model, own_server: ScriptedModel) -> None:
    own_server.say({"GET /api/ps": {"models": []}})
    own_server.forget()
    started = person.caller.ask(QUESTION, {"text": "Yes."}, models=[str(model.pk)])
    person.caller.ended(started["id"])
    assert not [record for record in own_server.requests() if record.path in ("/api/ps", "/props")]


def test_an_answer_to_a_cut_prompt_is_marked_wherever_it_is_read(
    person: Person, model: Model, own_server: ScriptedModel
) -> None:
    own_server.say(SMALLER)
    started = person.caller.ask(QUESTION, CUT, models=[str(model.pk)])
    notice = person.caller.ended(started["id"])["context_notice"]
    conversation = Conversation.objects.get(pk=started["conversation"])
    assert notice in export(conversation, "md") and notice in export(conversation, "json")
    messages = person.caller.http.get(f"conversations/{conversation.pk}/messages/").json()["results"]
    assert [message["context_notice"] for message in messages] == [notice, None]


@pytest.mark.parametrize(
    ("read", "says", "titled"),
    [
        (300, SMALLER | {"GET /api/ps": {"models": [{"name": "llama3.2:3b", "context_length": 500}]}}, False),
        (300, {}, True),  # a count proves nothing
        (5_000, {}, True),
    ],
)
def test_a_title_is_thrown_away_on_proof_only(
    person: Person, model: Model, own_server: ScriptedModel, read: int, says: dict[str, Any], titled: bool
) -> None:
    own_server.say(says)
    title = uuid4().hex
    script = {"tokens": 1_500, "title": {"text": title, "usage": {"input": read, "output": 4}}}
    started = person.caller.ask("Go.", script, models=[str(model.pk)])
    person.caller.ended(started["id"])
    background.submit(titles.write_title(UUID(started["id"]))).result()
    assert (Conversation.objects.get(pk=started["conversation"]).title == title) is titled


def test_a_short_title_is_written_anew_on_a_suspicion(person: Person, model: Model, own_server: ScriptedModel) -> None:
    Model.objects.filter(pk=model.pk).update(tokenizer="o200k_base")
    title = uuid4().hex
    script = {"tokens": 700, "title": {"text": title, "usage": {"input": 260, "output": 4}}}
    started = person.caller.ask("Go.", script, models=[str(model.pk)])
    person.caller.ended(started["id"])
    until(lambda: Conversation.objects.get(pk=started["conversation"]).title == title, "it has its title")
    calls = ModelCall.objects.filter(conversation=started["conversation"], purpose="title")
    assert calls.count() == 2
