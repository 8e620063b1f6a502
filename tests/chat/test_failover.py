"""A model whose provider is away before the first token: the fallback answers, and people and programs are told."""

import json
import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils.translation import override

from accounts.models import PeopleGroup
from chat.conversations import titles
from chat.ledger.models import ModelCall
from chat.models import Message, StepReasoning, Summary, SummaryJob, Turn
from chat.summaries.services import summarise_now
from core.background import submit
from core.errors import ModelError
from core.sentences import Sentence
from llm import services
from llm.models import Model, Provider
from llm.services import current_outage, first_available, note_outage
from tests.application import Application
from tests.chat.citing import ANSWER, CLAUSE, SEARCH
from tests.chat.conversations import past
from tests.conftest import Person
from tests.product import WAIT, until
from tests.projects.uploads import searchable

DOWN = "http://127.0.0.1:9/v1"  # the port that discards; nobody listens
CALL = {"usage": False, "reasoning": "Let me see.", "text": "", "tool_calls": [{"name": "list_tasks", "arguments": {}}]}

Make = Callable[..., Model]


@pytest.fixture
def make(application: Application) -> Make:
    def create(kind: str = "openai", url: str | None = None, script: Any = None, **fields: Any) -> Model:
        """Create a model with a provider of its own. It plays `script` for every request."""
        path = "" if kind == "anthropic" else "/v1"
        address = application.model.url + path if url is None else url
        provider = Provider.objects.create(name=uuid4().hex, kind=kind, base_url=address)
        name = f"scripted-{uuid4().hex[:8]}"
        if script is not None:
            name = application.model.set_script(name, script)
        return Model.objects.create(
            provider=provider, **{"name": name, "context_window": 32_000, "tools": True, **fields}
        )

    return create


@pytest.fixture
def place(person: Person) -> str:
    secretary = {"name": "Secretary", "instructions": "Be brief.", "tools": ["tasks"]}
    persona = person.caller.post("personas/", secretary, expect=201)
    return str(person.caller.post("conversations/", {"persona": persona["id"]}, expect=201)["id"])


def answered_turn(person: Person, model: Model, script: Any = None, place: str | None = None) -> Turn:
    scripted = {**(script or {"text": "I stand in."}), "note": uuid4().hex}
    return ended(person, person.caller.ask("What is there?", scripted, place, models=[str(model.pk)])["id"])


def ended(person: Person, turn: str) -> Turn:
    person.caller.ended(turn)
    return Turn.objects.select_related("answer__model", "model").get(pk=turn)


def test_the_fallback_answers_for_a_provider_that_is_down(person: Person, make: Make, client: Client) -> None:
    other = make()
    model = make(url=DOWN, fallback=other)
    turn = answered_turn(person, model)
    assert (turn.status, turn.answer.text) == ("done", "I stand in.")
    assert (turn.model, turn.answer.model, turn.fallback_reason) == (model, other, "provider_unreachable")
    first, second = turn.report["calls"]
    sentence = (
        f"{other.name} was asked instead of {model.name}, which was not available (“The model's "
        "provider cannot be reached. Check its base URL, and whether it is running.”)."
    )
    notes = [[Sentence.load(note).english for note in call["notes"]] for call in (first, second)]
    assert (first["model"], second["model"], notes) == (model.name, other.name, [[sentence], [sentence]])
    row = person.caller.get(f"turns/{turn.pk}/")
    assert (row["model"], row["answered_by"]) == (str(model.pk), str(other.pk))
    assert person.caller.get(f"messages/{turn.answer_id}/")["model"] == str(other.pk)
    assert person.caller.get(f"models/{model.pk}/")["fallback"] == str(other.pk)
    client.force_login(person.user)
    page = " ".join(client.get(f"/c/{turn.conversation_id}/").content.decode().split())
    why = "its provider could not be reached"
    assert f"{model.name} was not available ({why}), so {other.name} was asked instead." in page
    assert re.search(f'value="{model.pk}"[^>]*checked', page)  # the next question goes to the one that was chosen


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({"error": {"status": 503}}, "provider_overloaded"),
        ({"error": {"status": 529}}, "provider_overloaded"),
        ({"error": {"status": 429, "headers": {"retry-after": "7"}}}, "rate_limited"),
        ({"error": {"status": 429, "code": "insufficient_quota"}}, "quota_exhausted"),
        ({"error": {"status": 401}}, "bad_credentials"),
        ({"cut_after": 0, "early_headers": True}, "stream_cut"),
        ({"raw": [{"error": {"message": "Overloaded", "type": "overloaded_error"}}]}, "provider_overloaded"),
        ({"silent_after": 0}, "provider_timeout"),
        ({"silent_after": 0, "early_headers": True}, "provider_timeout"),
    ],
)
def test_what_is_the_providers_matter_is_answered_elsewhere(
    step: dict[str, Any], reason: str, person: Person, make: Make
) -> None:
    model = make(script=step, fallback=make())
    Provider.objects.filter(pk=model.provider_id).update(silence_timeout=1)
    turn = answered_turn(person, model)
    assert (turn.status, turn.fallback_reason, turn.answer.text) == ("done", reason, "I stand in.")


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ({"error": {"status": 400, "message": "No."}}, "bad_model_request"),
        ({"error": {"status": 404, "code": "model_not_found"}}, "model_not_found"),
        ({"error": {"status": 400, "code": "content_filter"}}, "content_filtered"),
        ({"context_limit": 1}, "context_too_long"),
        ({"text": "It was a dark and stormy night.", "cut_after": 3}, "stream_cut"),
        ({"reasoning": "It may be that it is so.", "text": "", "cut_after": 3}, "stream_cut"),
    ],
)
def test_what_would_be_refused_again_or_has_begun_is_not(
    step: dict[str, Any], code: str, person: Person, make: Make
) -> None:
    model = make(script=step, fallback=make())
    turn = answered_turn(person, model)
    assert (turn.status, turn.answer.error_code, turn.fallback_reason) == ("failed", code, "")
    assert turn.answer.model == model


def test_without_a_fallback_the_answer_fails_as_ever(person: Person, make: Make) -> None:
    turn = answered_turn(person, make(url=DOWN, fallback=make(enabled=False)))
    assert (turn.status, turn.answer.error_code, turn.fallback_reason) == ("failed", "provider_unreachable", "")


def test_a_fallback_of_a_fallback_is_asked_and_the_last_error_told(person: Person, make: Make) -> None:
    last = make()
    off = make(enabled=False, fallback=last)
    first = make(url=DOWN, fallback=make(script={"error": {"status": 500}}, fallback=off))
    assert answered_turn(person, first).answer.model == last
    Model.objects.filter(pk=last.pk).update(name=make(script={"error": {"status": 401}}).name)
    turn = answered_turn(person, make(url=DOWN, fallback=last))
    assert (turn.answer.error_code, turn.fallback_reason) == ("bad_credentials", "provider_unreachable")


def test_a_provider_that_has_just_failed_is_passed_over(application: Application, person: Person, make: Make) -> None:
    model = make(script={"error": {"status": 503}}, fallback=make())
    assert answered_turn(person, model).answer.text == "I stand in."
    asked_it = len(application.model.requests(model.name))
    again = answered_turn(person, model)
    assert (again.answer.text, again.fallback_reason) == ("I stand in.", "provider_overloaded")
    assert len(again.report["calls"]) == 1
    assert len(application.model.requests(model.name)) == asked_it


def test_a_provider_says_how_long_it_is_to_be_left_alone(make: Make) -> None:
    other = make()
    model = make(fallback=other)
    assert (first_available(model), current_outage(model)) == (model, None)
    note_outage(model, ModelError("rate_limited", "Slowly.", retryable=True, retry_after=-5))
    assert first_available(model) == other
    note_outage(other, ModelError("provider_overloaded", "Not now.", retryable=True))
    assert first_available(model) == model  # nobody is left, so the first is as good as any
    assert (first_available(model, model), first_available(model, other)) == (other, None)


@pytest.mark.parametrize("kinds", [("anthropic", "responses"), ("responses", "anthropic"), ("openai", "anthropic")])
def test_in_the_middle_of_a_loop_the_other_goes_on_with_the_results(
    kinds: tuple[str, str], application: Application, person: Person, make: Make, place: str
) -> None:
    first, second = kinds
    other = make(second, script={"steps": [{"text": "Not this."}, {"text": "There is nothing to do.", "usage": False}]})
    model = make(first, script={"steps": [CALL, {"error": {"status": 503}}]}, fallback=other)
    turn = answered_turn(person, model, place=place)
    assert (turn.status, turn.answer.text) == ("done", "There is nothing to do.")
    assert [part["type"] for part in turn.answer.parts][-3:] == ["tool_call", "tool_result", "text"]
    assert [call["model"] for call in turn.report["calls"]] == [model.name, model.name, other.name]
    forgotten = f"{other.name} did not get the reasoning of {model.name} before its tool calls."
    assert Sentence.load(turn.report["calls"][-1]["notes"][-1]).english == forgotten
    assert not StepReasoning.objects.filter(turn=turn).exists()
    [request] = application.model.requests(other.name)
    assert request.status == 200
    assert "Let me see" not in json.dumps(request.body)


def test_the_question_is_searched_once_though_another_model_goes_on(person: Person, make: Make) -> None:
    place = person.caller.conversation()
    file = searchable(person.caller, "contract.txt", CLAUSE)
    other = make(script={"steps": [{"text": "Not this."}, SEARCH, ANSWER]})
    model = make(script={"steps": [SEARCH, {"error": {"status": 503}}]}, fallback=other)
    turn = ended(person, person.caller.ask("Which?", None, place, files=[file["id"]], models=[str(model.pk)])["id"])
    calls = [json.loads(part["arguments"]) for part in turn.answer.parts if part["type"] == "tool_call"]
    assert [call["variants"] for call in calls] == [["maximum fee", "Which?"], ["maximum fee"]]


def test_the_other_model_is_planned_for_by_its_own_window_and_abilities(person: Person, make: Make) -> None:
    other = make(context_window=6_000, tools=False, tokenizer="o200k_base")
    conversation = past(person.user, 40, words=60)
    turn = answered_turn(person, make(url=DOWN, fallback=other), place=str(conversation.pk))
    first, second = turn.report["calls"]
    assert (first["window"], second["window"]) == (32_000, 6_000)
    assert second["used"] <= second["limit"] < first["used"]
    assert turn.context_left_out > 0
    assert second["tools"] == []


def test_a_fallback_that_is_too_small_for_the_prompt_leaves_the_reason_of_the_chosen_one(
    person: Person, make: Make
) -> None:
    model = make(url=DOWN, fallback=make(context_window=2_000))
    turn = ended(person, person.caller.ask("word " * 3_000, models=[str(model.pk)])["id"])
    assert (turn.status, turn.answer.error_code) == ("failed", "provider_unreachable")
    assert turn.model is not None and turn.answer.error_detail.english.startswith(
        "The model's provider cannot be reached."
    )
    assert f"“{turn.model.fallback}” cannot take its place (“The required parts are" in turn.answer.error_detail.english
    with override("vi"):
        assert "cannot" not in str(turn.answer.error_detail)


def test_another_attempt_is_for_the_model_that_was_chosen(person: Person, make: Make) -> None:
    other = make()
    model = make(script={"steps": [{"error": {"status": 503}, "error_times": 1, "text": "I am back."}]}, fallback=other)
    turn = answered_turn(person, model)
    assert turn.answer.model == other
    [again] = person.caller.post(f"messages/{turn.answer_id}/regenerate/", {}, expect=202)["turns"]
    assert again["model"] == str(model.pk)
    assert ended(person, again["id"]).answer.model == other  # as it is still passed over
    [edited] = person.caller.post(f"messages/{turn.user_message_id}/edit/", {"text": "Hm?"}, expect=202)["turns"]
    assert edited["model"] == str(model.pk)
    person.caller.ended(edited["id"])


def test_programs_hear_of_it(application: Application, person: Person, make: Make) -> None:
    other = make()
    model = make(url=DOWN, fallback=other)
    headers = {"Authorization": f"Bearer {person.token}"}
    body = {"model": str(model.pk), "messages": [{"role": "user", "content": "Hello"}]}
    with application.http("/v1/", headers=headers) as http:
        answer = http.post("chat/completions", json=body)
        assert (answer.status_code, answer.json()["model"]) == (200, other.name)
    turn = answered_turn(person, model)
    with application.http("/api/v1/", headers=headers) as http:
        lines = http.get(f"turns/{turn.pk}/events/").text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    [fallback] = [event for event in events if event["type"] == "MODEL_FALLBACK"]
    assert (fallback["model"], fallback["instead_of"], fallback["code"]) == (
        other.name,
        model.name,
        "provider_unreachable",
    )


def test_titles_and_summaries_are_written_by_the_fallback_too(person: Person, make: Make) -> None:
    other = make()
    model = make(url=DOWN, fallback=other)
    turn = answered_turn(person, model, {"text": "I stand in.", "title": "Standing in"})
    Message.objects.filter(pk=turn.answer_id).update(model=model)
    submit(titles.write_title(turn.pk)).result(WAIT)
    turn.conversation.refresh_from_db()
    assert turn.conversation.title == "Standing in"
    conversation = past(person.user, 30, words=300, model=model)
    summarise_now(user=person.user, conversation=conversation)
    summary = until(lambda: Summary.objects.filter(conversation=conversation).first(), "the summary is written")
    assert summary.model_name == other.name


def test_a_fallback_that_one_may_not_use_is_never_asked(person: Person, make: Make) -> None:
    model = make(url=DOWN, fallback=make())
    everyone, full = PeopleGroup.objects.filter(everyone=True), PeopleGroup.of_everyone()
    everyone.get().allowed_models.set([model])
    everyone.update(all_models=False)
    try:
        turn = answered_turn(person, model)
        assert (turn.status, turn.answer.error_code, turn.fallback_reason) == ("failed", "provider_unreachable", "")
        Message.objects.filter(pk=turn.answer_id).update(parts=[{"type": "text", "text": "Said."}])
        submit(titles.write_title(turn.pk)).result(WAIT)
        conversation = past(person.user, 30, words=300, model=model)
        summarise_now(user=person.user, conversation=conversation)
        jobs = SummaryJob.objects.filter(conversation=conversation, status="failed")
        until(jobs.first, "the summary fails")
        assert not ModelCall.objects.filter(person=person.user).exists()
    finally:
        everyone.update(all_models=full.all_models)
        everyone.get().allowed_models.clear()


@pytest.mark.parametrize("pieces", [0, 2])
def test_a_provider_that_hangs_while_it_summarises_is_not_waited_for_where_there_is_another(
    pieces: int, application: Application, person: Person, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "SILENCE_TIMEOUT", 0.5)  # its row says 120 seconds, and the job has 110
    other = make()
    model = make(script={"text": "## Now\nNever.", "silent_after": pieces}, fallback=other)
    conversation = past(person.user, 30, words=300, model=model)
    summarise_now(user=person.user, conversation=conversation)
    summary = until(lambda: Summary.objects.filter(conversation=conversation).first(), "the summary is written")
    assert summary.model_name == other.name
    assert len(application.model.requests(model.name)) == 1
    failure = current_outage(model)
    assert failure is not None and failure.code == "provider_timeout"


def test_a_model_is_not_its_own_fallback(make: Make) -> None:
    other = make()
    model = make(fallback=other)
    for row, fallback in ((model, model), (other, model)):
        row = Model.objects.get(pk=row.pk)
        row.fallback = fallback
        with pytest.raises(ValidationError, match="cannot be its own fallback"):
            row.full_clean()


def test_the_command_sets_a_fallback(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    other, name = make(), uuid4().hex
    call_command("provider", name, "--model", "m:8192", "--fallback", f"{other.provider}/{other.name}")
    assert Model.objects.get(provider__name=name).fallback == other
    assert f"m: 8,192 tokens, else {other.name}" in capsys.readouterr().out
    with pytest.raises(CommandError, match="no usable model named nobody"):
        call_command("provider", uuid4().hex, "--model", "m", "--fallback", "nobody")
    with pytest.raises(CommandError, match="cannot be its own fallback"):
        call_command("provider", str(other.provider), "--model", other.name, "--fallback", f"{name}/m")
