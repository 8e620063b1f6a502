"""The ledger: a row for every model call at the prices of its time, however the turn ends."""

from datetime import UTC, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db.models import Count, Sum
from django.utils import timezone

from chat.ledger.models import ModelCall
from chat.ledger.services import UsageFigures
from chat.ledger.sums import KINDS, UsageReport
from chat.models import Conversation, Message, Turn
from chat.turns import runner
from chat.turns.store import RequestedCall
from core import background
from llm.models import Model, Provider
from tests.application import Application
from tests.chat.runs.working import DONE, drafting, script, tool_model, work
from tests.conftest import Person
from tests.product import until

TOOL = {"name": "get_tasks", "arguments": {}}


@pytest.fixture
def priced(application: Application) -> Model:
    provider = Provider.objects.create(name=uuid4().hex, kind="openai", base_url=application.model.openai_url)
    prices = {"input_price": 3, "output_price": 15, "cached_input_price": Decimal("0.3"), "cache_write_price": 4}
    return Model.objects.create(provider=provider, name="priced", context_window=128_000, tools=True, **prices)


def calls_of(turn: str) -> list[ModelCall]:
    return list(ModelCall.objects.filter(turn=UUID(turn)).order_by("number"))


def ask_model(person: Person, model: Model, *steps: Any, text: str = "Go.") -> Any:
    return person.caller.ask(text, {"steps": list(steps)}, models=[str(model.pk)])


def test_an_answer_is_written_down_with_what_it_cost(person: Person, priced: Model) -> None:
    usage = {"input": 1_234, "cached": 1_000, "output": 200, "reasoning": 150}
    turn = ask_model(person, priced, {"text": "Yes.", "usage": usage})
    person.caller.ended(turn["id"])
    [call] = calls_of(turn["id"])
    assert (call.input, call.cached_input, call.cache_written) == (1_234, 1_000, 0)
    assert (call.output, call.reasoning) == (200, 150)
    assert call.cost == Decimal("0.004002") and not call.counted  # 234 at 3, 1,000 at 0.3, 200 at 15
    assert (call.person, str(call.conversation_id)) == (person.user, turn["conversation"])
    assert (call.purpose, call.number, call.model, call.provider_name) == ("answer", 1, priced, priced.provider.name)


def test_later_prices_change_nothing_and_the_row_outlives_what_it_names(person: Person, priced: Model) -> None:
    turn = ask_model(person, priced, {"usage": {"input": 1_000, "output": 0}})
    person.caller.ended(turn["id"])
    [call] = calls_of(turn["id"])
    Model.objects.filter(pk=priced.pk).update(input_price=500)
    Conversation.objects.get(pk=turn["conversation"]).delete()
    priced.delete()
    person.user.delete()
    call.refresh_from_db()
    assert (call.turn, call.conversation, call.model, call.person) == (None, None, None, None)
    assert call.model_name == "priced" and call.input == 1_000 and call.cost is not None and call.cost < 1


def test_every_call_of_a_turn_is_a_row_and_together_they_are_the_turn(person: Person, priced: Model) -> None:
    steps = [
        {"tool_calls": [TOOL], "usage": {"input": 900, "output": 30}},
        {"tool_calls": [TOOL], "usage": {"input": 1_000, "cached": 800, "output": 20}},
        {"text": "Done.", "usage": {"input": 1_100, "cached": 1_000, "output": 10}},
    ]
    turn = ask_model(person, priced, *steps)
    ended = person.caller.ended(turn["id"])
    calls = calls_of(turn["id"])
    assert [(call.number, call.input) for call in calls] == [(1, 900), (2, 1_000), (3, 1_100)]
    sums = {name: sum(getattr(call, name) for call in calls) for name in ("input", "output", "cached_input")}
    assert sums == {name: ended["usage"][name] for name in sums}


def test_without_a_price_there_are_tokens_only(person: Person, scripted_model_row: Model) -> None:
    turn = ask_model(person, scripted_model_row, {"usage": {"input": 50, "output": 5}})
    person.caller.ended(turn["id"])
    [call] = calls_of(turn["id"])
    assert (call.input, call.output, call.cost) == (50, 5, None)


@pytest.mark.parametrize(
    "usage",
    [False, {"input": -5, "output": -1}, {"input": "many", "output": None}, {"input": 10**30, "output": 10**30}],
)
def test_what_the_provider_does_not_say_is_counted_and_marked(person: Person, priced: Model, usage: object) -> None:
    turn = ask_model(person, priced, {"text": "One two three.", "usage": usage})
    person.caller.ended(turn["id"])
    [call] = calls_of(turn["id"])
    planned = Turn.objects.get(pk=str(turn["id"])).report["calls"][0]
    assert call.counted and call.input == planned["used"] + planned["tools_tokens"] > 0 and 3 <= call.output <= 5
    assert call.cost == (call.input * 3 + call.output * 15) / Decimal(10**6)


def test_more_cached_than_read_is_no_discount_beyond_the_prompt(person: Person, priced: Model) -> None:
    turn = ask_model(person, priced, {"usage": {"input": 100, "cached": 5_000, "output": 10, "reasoning": 99}})
    shown = person.caller.ended(turn["id"])["usage"]
    [call] = calls_of(turn["id"])
    assert (call.cached_input, call.reasoning, call.cost) == (100, 10, Decimal("0.00018"))
    assert (shown["cached_input"], shown["reasoning"]) == (100, 10)


def test_a_stopped_answer_is_counted_as_far_as_it_came(person: Person, priced: Model) -> None:
    steps = [
        {"tool_calls": [TOOL], "usage": {"input": 900, "output": 30}},
        {"tokens": 4_000, "interval": 0.02},
    ]
    turn = ask_model(person, priced, *steps)
    for event in person.caller.events(turn["id"]):
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            person.caller.post(f"turns/{turn['id']}/stop/")
    first, second = calls_of(turn["id"])
    assert (first.input, first.output, first.counted) == (900, 30, False)
    assert second.counted and second.input > 0 and second.output > 0


def test_what_the_cache_will_have_served_of_a_stopped_answer_is_not_billed_as_plain(
    person: Person, priced: Model
) -> None:
    text = "A long story. " * 1_000
    first = ask_model(person, priced, {"text": "Yes.", "usage": {"input": 4_000, "cached": 0, "output": 2}}, text=text)
    place = person.caller.ended(first["id"])["conversation"]
    turn = person.caller.ask("On.", {"tokens": 4_000, "interval": 0.02}, place, models=[str(priced.pk)])
    for event in person.caller.events(turn["id"]):
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            person.caller.post(f"turns/{turn['id']}/stop/")
    [call] = calls_of(turn["id"])
    expected = Turn.objects.get(pk=turn["id"]).report["calls"][0]["cache"]["expected"]
    assert call.counted and call.cached_input == expected > 3_000
    assert call.cost == ((call.input - expected) * 3 + expected * Decimal("0.3") + call.output * 15) / 10**6


def test_a_call_that_was_refused_costs_nothing(person: Person, priced: Model) -> None:
    turn = ask_model(person, priced, {"error": {"status": 400, "message": "No."}})
    assert person.caller.ended(turn["id"])["status"] == "failed"
    assert calls_of(turn["id"]) == []


def test_a_dead_workers_turn_has_what_was_reported_and_for_the_rest_our_count(person: Person, priced: Model) -> None:
    """As the worker left it: of the first call the prompt was once too long, the second was under way."""
    turn = ask_model(person, priced, {"text": "Yes."})
    person.caller.ended(turn["id"])
    row = Turn.objects.get(pk=str(turn["id"]))
    ModelCall.objects.filter(turn=row).delete()
    call = {**row.report["calls"][0], "usage": {}}
    reported = {"input": 700, "output": 40, "cached_input": 300, "reasoning": 0, "cache_written": 100}
    parts = [
        {"type": "tool_call", "id": "1", "name": "get_tasks", "arguments": "{}"},
        {"type": "tool_result", "id": "1", "text": "None."},
        {"type": "text", "text": "As I was saying"},
    ]
    Message.objects.filter(pk=row.answer_id).update(parts=parts, status="pending")
    refused = {**call, "cycle": 1, "used": 99_999}
    calls = [refused, {**call, "cycle": 1, "usage": reported}, {**call, "cycle": 2}]
    requested = [{name: each[name] for name in RequestedCall.__annotations__} for each in calls]
    left = {"status": "running", "heartbeat": timezone.now() - timedelta(seconds=31), "seq": 999}
    Turn.objects.filter(pk=row.pk).update(**left, report={"calls": calls}, asked=requested)
    background.submit(runner.recover(row.pk)).result()
    background.submit(runner.recover(row.pk)).result()
    first, second = calls_of(turn["id"])
    assert (first.input, first.cached_input, first.cache_written, first.counted) == (700, 300, 100, False)
    assert first.cost == Decimal("0.00199")  # 300 at 3, 300 at 0.3, 100 at 4, 40 at 15
    assert (second.input, second.output, second.counted) == (call["used"] + call["tools_tokens"], 4, True)
    ModelCall.objects.filter(turn=row).delete()
    # Killed before it was stored.
    Turn.objects.filter(pk=row.pk).update(status="running", report={}, asked=requested[-1:])
    background.submit(runner.recover(row.pk)).result()
    [only] = calls_of(turn["id"])
    assert (only.input, only.counted, only.model) == (call["used"] + call["tools_tokens"], True, priced)


def test_what_is_reported_is_stored_before_the_tools_have_run(person: Person, priced: Model) -> None:
    steps = [{"tool_calls": [TOOL], "usage": {"input": 900, "output": 30}}, {"text": "Never said.", "ttft": 600}]
    turn = ask_model(person, priced, *steps)
    report = until(lambda: _first_usage(str(turn["id"])), "the first call's usage is stored")
    assert report["input"] == 900
    person.caller.post(f"turns/{turn['id']}/stop/")
    person.caller.ended(turn["id"])


def _first_usage(turn: str) -> dict[str, int]:
    calls = Turn.objects.get(pk=turn).report.get("calls", [])
    return calls[0]["usage"] if calls else {}


def test_titles_and_summaries_are_written_down_too(person: Person, priced: Model) -> None:
    turn = ask_model(person, priced, {"text": "Yes.", "title": "A title"})
    person.caller.ended(turn["id"])
    rows = ModelCall.objects.filter(conversation=turn["conversation"], purpose="title")
    title = until(rows.first, "the title is written down")
    assert title.input > 0 and title.cost is not None and title.turn is None and title.person == person.user


def test_sums_agree_with_side_by_side_answers(person: Person, priced: Model, scripted_model_row: Model) -> None:
    script = {"text": "Both.", "usage": {"input": 1_001, "output": 7}}
    models = [str(priced.pk), str(scripted_model_row.pk)]
    first = person.caller.ask("Both of you.", script, models=models)
    turns = [str(pk) for pk in Turn.objects.filter(conversation=first["conversation"]).values_list("pk", flat=True)]
    for turn in turns:
        person.caller.ended(turn)
    again = person.caller.post(f"messages/{person.caller.turn(turns[0])['message']}/regenerate/")["turns"][0]
    person.caller.ended(again["id"])
    calls = ModelCall.objects.filter(conversation=UUID(first["conversation"]), purpose="answer")
    sums = calls.aggregate(input=Sum("input"), output=Sum("output"), cost=Sum("cost"))
    assert len(calls) == 3 and sums["input"] == 3_003 and sums["output"] == 21
    assert sums["cost"] == sum(call.cost for call in calls if call.cost is not None)


def test_the_model_that_was_asked_in_its_place_is_the_one_that_costs(person: Person, priced: Model) -> None:
    away = Provider.objects.create(name=uuid4().hex, kind="openai", base_url="http://127.0.0.1:9/v1")
    prices = {"input_price": 900, "output_price": 900}
    down = Model.objects.create(provider=away, name="down", context_window=32_000, fallback=priced, **prices)
    turn = ask_model(person, down, {"text": "Instead.", "usage": {"input": 1_000, "output": 0}})
    person.caller.ended(turn["id"])
    [call] = calls_of(turn["id"])
    assert (call.model, call.model_name, call.number, call.input) == (priced, "priced", 1, 1_000)
    assert call.cost is not None and call.cost < Decimal("0.01")


def test_the_calls_of_a_run_are_its(application: Application, person: Person, scripted_model_row: Model) -> None:
    item = script(*DONE)
    worked = work(person, application, tool_model(scripted_model_row), notes=drafting(item))
    run = worked.begin(start=True)
    worked.until(run["id"], "done")
    turns = Turn.objects.filter(conversation=run["conversation"])
    calls = ModelCall.objects.filter(turn__in=turns)
    assert {call.purpose for call in calls} == {"run"} and {call.turn_id for call in calls} == {t.pk for t in turns}


def test_sums_agree_after_many_answers_at_once_with_stops_and_retries(person: Person, priced: Model) -> None:
    quick = [{"tool_calls": [TOOL], "usage": {"input": 911, "output": 7}}, {"usage": {"input": 1_003, "output": 11}}]
    slow = [{"tool_calls": [TOOL], "usage": {"input": 911, "output": 7}}, {"tokens": 4_000, "interval": 0.02}]
    turns = [ask_model(person, priced, *(slow if number % 2 else quick)) for number in range(8)]
    for turn in turns[1::2]:
        for event in person.caller.events(turn["id"]):
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                person.caller.post(f"turns/{turn['id']}/stop/")
    ended = [person.caller.ended(turn["id"]) for turn in turns]
    again = person.caller.post(f"messages/{ended[0]['message']}/regenerate/")["turns"][0]
    ended.append(person.caller.ended(again["id"]))
    for turn in ended:
        calls = calls_of(turn["id"])
        assert [call.number for call in calls] == [1, 2]
        reported = [call for call in calls if not call.counted]
        assert sum(call.input for call in reported) == turn["usage"]["input"]
        assert Decimal(turn["cost"]) == sum(call.cost for call in calls if call.cost is not None)
    mine = {"person_id": person.user.pk, "purpose__in": [each for each in ModelCall.Purpose if each != "title"]}
    whole = ModelCall.objects.filter(**mine).aggregate(
        calls=Count("pk"), input=Sum("input"), output=Sum("output"), money=Sum("cost")
    )
    assert whole["calls"] == 18 and whole["money"] == sum(Decimal(turn["cost"]) for turn in ended)
    for by in KINDS:
        sums = sum((line.figures for line in UsageReport(None, None, UTC, mine).lines(by)), UsageFigures())
        assert (sums.calls, sums.input, sums.output, sums.cost) == tuple(whole.values())
