"""A prompt that is near its limit is counted by its provider, and planned by that; no other is."""

from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from core.background import submit
from llm.counting import exact_count
from llm.models import Model, Provider
from llm.types.model_call import ModelMessage, ModelRequest
from tests.application import Application
from tests.conftest import Person

COUNTS = "/v1/messages/count_tokens"


@pytest.fixture
def model(application: Application) -> Model:
    provider = Provider.objects.create(name=uuid4().hex, kind="anthropic", base_url=application.model.url)
    application.model.forget()
    prices = {"input_price": 1, "output_price": 1, "cache_write_price": 1}  # dollars per million tokens
    return Model.objects.create(provider=provider, name="claude-old", context_window=8_192, **prices)


def answered(person: Person, model: Model, text: str, **where: Any) -> Any:
    turn = person.caller.ask(text, {"text": "Yes."}, models=[str(model.pk)], **where)
    assert person.caller.ended(turn["id"])["status"] == "done"
    report = person.caller.http.get(f"turns/{turn['id']}/report/").json()
    return turn, report


def counted(application: Application) -> int:
    return sum(record.path == COUNTS for record in application.model.requests())


def test_an_ordinary_prompt_is_not_counted(person: Person, model: Model, application: Application) -> None:
    _, report = answered(person, model, "word " * 500)
    assert report["provider_count"] is None and counted(application) == 0


def test_one_near_the_limit_says_the_providers_count(person: Person, model: Model, application: Application) -> None:
    _, report = answered(person, model, "word " * 4_000)
    assert counted(application) == 1
    assert 5_000 < report["provider_count"] < 5_600  # a quarter of the characters, as the scripted model counts


def test_what_the_provider_counts_more_is_left_out(person: Person, model: Model) -> None:
    first, _ = answered(person, model, "word " * 1_900)
    _, report = answered(person, model, "word " * 4_000, conversation=first["conversation"])
    assert report["dropped"] and report["provider_count"] <= 8_192 - report["reserved_output"] - report["buffer"]


def test_what_the_provider_counts_less_stays(person: Person, model: Model, application: Application) -> None:
    """The margin for counts that may be wrong is given back, once the provider's own is there."""
    text = "word word word 7 "  # five tokens for us, a good four for the scripted model
    first, short = answered(person, model, text * 500)
    missing = short["limit"] - short["used"]
    _, report = answered(person, model, text * ((missing + 100) // 5), conversation=first["conversation"])
    assert counted(application) == 2
    assert report["dropped"] == [] and report["used"] > short["limit"]


def test_a_plan_is_counted_when_that_is_asked_for_and_then_is_what_the_turn_sends(
    person: Person, model: Model, application: Application
) -> None:
    text = "word " * 4_000 + '\nscript: {"text": "Yes."}'
    first, _ = answered(person, model, "word " * 1_900)

    def planned(**more: Any) -> Any:
        path = f"conversations/{first['conversation']}/plan/"
        return person.caller.post(path, {"text": text, "model": str(model.pk), **more}, expect=200)

    ours, before = planned(), counted(application)
    assert ours["countable"] and ours["provider_count"] is None and before == 0
    exact, calls = planned(count=True), counted(application)
    assert exact["provider_count"] and not exact["countable"] and 0 < calls <= 2
    assert Decimal(exact["cost"]["prompt"]) * 1_000_000 == exact["provider_count"]
    assert planned()["provider_count"] == exact["provider_count"] <= exact["provider_limit"]  # it is known by now
    turn = person.caller.ask(text, None, first["conversation"], models=[str(model.pk)])
    assert person.caller.ended(turn["id"])["status"] == "done"
    report = person.caller.get(f"turns/{turn['id']}/report/")
    for name in ("limit", "used", "sections", "unloaded", "provider_count"):
        assert exact[name] == report[name]
    assert exact["used"] != ours["used"] and counted(application) == calls


def test_what_the_provider_counts_is_asked_for_where_it_matters(
    person: Person, model: Model, application: Application
) -> None:
    client = Client()
    client.force_login(person.user)

    def line(text: str, query: str = "") -> str:
        return client.post(f"/plan/{query}", {"text": text, "model": str(model.pk)}).content.decode()

    assert "The provider&#x27;s count" not in line("short", "?panel") and "?count" not in line("short", "?count")
    assert "?count" in line("word " * 4_000)
    assert counted(application) == 0
    assert "?count" not in line("word " * 4_000, "?count")
    assert counted(application) > 0
    assert "The provider&#x27;s count" in line("word " * 4_000, "?panel")


def test_a_count_is_kept_by_what_was_counted(model: Model, application: Application) -> None:
    def count(text: str) -> int | None:
        return submit(exact_count(model, ModelRequest(model.name, (ModelMessage("user", text),), 500))).result()

    assert count("word " * 800) == count("word " * 800) is not None
    assert counted(application) == 1
    assert count("word " * 900) != count("word " * 800)
    assert counted(application) == 2
