"""The prompt lab: a replay of stored turns gives the same plan if nothing has changed, else it says why not."""

import json
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command

from accounts.models import User
from chat.lab.past import NO_VARIATION, Variation
from chat.lab.services import TurnComparison, choose_turns, plan_turns
from chat.ledger.models import ModelCall
from chat.models import Conversation, Summary, Turn
from files.models import File
from llm.models import Model, Provider
from personas.models import BudgetProfile, Persona, Reminder, SystemPrompt
from personas.services import save_prompt
from tests.application import Application
from tests.chat.citing import ANSWER, SEARCH, ask
from tests.chat.conversations import past
from tests.chat.documents import ask_and_wait, picture, upload
from tests.chat.growing import small, until_summarised
from tests.chat.openai_clients import client_of
from tests.conftest import Person

DOWN = "http://127.0.0.1:9/v1"
WORDS = "several words that take room " * 60


def again(owner: User, variation: Variation = NO_VARIATION) -> list[TurnComparison]:
    return list(plan_turns(choose_turns(most=1_000, owner=owner), variation))


def equal(results: list[TurnComparison]) -> list[TurnComparison]:
    """Return whether a replay has the same figures as the stored turn."""
    assert [problem for result in results for problem in result.problems] == []
    assert [result.planned for result in results] == [result.sent for result in results]
    assert [change for result in results for change in result.changes] == []
    return results


def model_of(application: Application, kind: str = "openai", **fields: Any) -> Model:
    url = application.model.url if kind == "anthropic" else application.model.openai_url
    provider = Provider.objects.create(name=uuid4().hex, kind=kind, base_url=fields.pop("url", url))
    name = f"scripted-{uuid4().hex[:8]}"
    return Model.objects.create(provider=provider, **{"name": name, "context_window": 32_000, "tools": True, **fields})


def talked(person: Person, questions: int = 4, persona: Persona | None = None, **more: Any) -> str:
    body = {"persona": str(persona.pk)} if persona else {}
    place = str(person.caller.post("conversations/", body, expect=201)["id"])
    for number in range(questions):
        ask_and_wait(person, place, f"Question {number}. {WORDS}", **more)
    return place


@pytest.mark.parametrize("kind", ["openai", "anthropic", "responses"])
def test_tools_files_reminders_and_reasoning(application: Application, person: Person, place: str, kind: str) -> None:
    model = model_of(application, kind, vision=True)
    persona = Persona.objects.create(owner=person.user, name="P", instructions="Be brief.", date_awareness="minute")
    persona.reminders.add(Reminder.objects.create(text="Answer in one line.", scope=Reminder.Scope.PERSONA))
    person.caller.http.patch(f"conversations/{place}/", json={"persona": str(persona.pk)})
    ask(person, place, model, "Which clause?", {**SEARCH, "reasoning": "Let me look."}, SEARCH, ANSWER)
    note, image = upload(person, "note.txt", b"Twelve apples."), upload(person, "shot.png", picture())
    ask_and_wait(person, place, "How many?", models=[str(model.pk)], files=[note["id"], image["id"]])
    ask(person, place, model, "And now?", SEARCH, ANSWER)
    assert [len(each.replanned.past) for each in equal(again(person.user)) if each.replanned] == [3, 1, 2]


def test_tasks_branches_stops_and_models_side_by_side(application: Application, person: Person) -> None:
    person.caller.post("tasks/", {"title": "Water the plants", "level": "task"}, expect=201)
    place, other = talked(person, 2), model_of(application, tokenizer="o200k_base")
    first = Turn.objects.filter(conversation=UUID(place)).earliest("id")
    person.caller.ended(
        person.caller.post(f"messages/{first.user_message_id}/edit/", {"text": "Else."})["turns"][0]["id"]
    )
    person.caller.ended(person.caller.post(f"messages/{first.answer_id}/regenerate/")["turns"][0]["id"])
    both = [str(first.model_id), str(other.pk)]
    for turn in person.caller.post(f"conversations/{place}/turns/", {"text": "Both?", "models": both})["turns"]:
        person.caller.ended(turn["id"])
    live = person.caller.ask("Stop.", {"ttft": 600, "text": "never"}, place)
    application.model.arrived("Stop.")
    person.caller.post(f"turns/{live['id']}/stop/")
    assert person.caller.ended(live["id"])["status"] == "stopped"
    assert len(equal(again(person.user))) == 7


def test_summaries(application: Application, person: Person) -> None:
    place = UUID(person.caller.post("conversations/", {"persona": str(small(person).pk)}, expect=201)["id"])
    until_summarised(person, place)
    until_summarised(person, place)
    ask_and_wait(person, str(place), "What was that?")
    results = equal(again(person.user))
    assert any(each.replanned and each.replanned.past[0].stored["summary"] for each in results)
    Summary.objects.filter(conversation=place).delete()
    problems = [each.problems for each in again(person.user)]
    assert problems[-1][0].code == "summary_deleted" and problems[0] == []


def test_marks_of_that_time(application: Application, person: Person) -> None:
    place = talked(person, 3)
    questions = Turn.objects.filter(conversation=UUID(place)).order_by("id").values_list("user_message", flat=True)
    pinned, left_out, _ = list(questions)
    for question, mark in ((pinned, "pinned"), (left_out, "excluded")):
        assert person.caller.http.patch(f"messages/{question}/", json={"mark": mark}).status_code == 200
    ask_and_wait(person, place, "What is left?")
    for question in (pinned, left_out):
        assert person.caller.http.patch(f"messages/{question}/", json={"mark": None}).status_code == 200
    ask_and_wait(person, place, "And now?")
    results = equal(again(person.user))
    assert [each.sent.left_out > 0 for each in results if each.sent] == [False, False, False, True, False]


def test_a_fallback_and_a_count_of_the_provider(application: Application, person: Person) -> None:
    stand_in = model_of(application)
    ask_and_wait(
        person,
        talked(person, 0),
        "Is anybody there?",
        models=[str(model_of(application, url=DOWN, fallback=stand_in).pk)],
    )
    counted = model_of(application, "anthropic", name="claude-old", context_window=8_192)
    long = talked(person, 2, models=[str(counted.pk)])
    ask_and_wait(person, long, "word " * 4_000, models=[str(counted.pk)])
    results = equal(again(person.user))
    assert results[-1].replanned and results[-1].replanned.past[0].stored["provider_count"]


def test_what_a_program_asks_with_tools_of_its_own(application: Application, person: Person) -> None:
    model = model_of(application)
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    question: Any = {"role": "user", "content": 'Rain?\nscript: {"tool_calls": [{"name": "weather", "arguments": {}}]}'}
    client = client_of(person)
    first = client.chat.completions.create(model=model.name, messages=[question], tools=[tool])  # type: ignore[list-item]
    called: Any = first.choices[0].message.model_dump(exclude_none=True)
    result: Any = {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "Dry."}
    client.chat.completions.create(model=model.name, messages=[question, called, result], tools=[tool])  # type: ignore[list-item]
    assert len(equal(again(person.user))) == 2


def test_rows_that_change_later_change_nothing_of_what_was(
    application: Application, person: Person, place: str
) -> None:
    """A replay uses the texts, the room, the model's facts and the project's files of that time."""
    profile = BudgetProfile.objects.create(name=uuid4().hex, window=16_000)
    persona = Persona.objects.create(owner=person.user, name="P", instructions="Be brief.", budget_profile=profile)
    person.caller.http.patch(f"conversations/{place}/", json={"persona": str(persona.pk)})
    model = model_of(application)
    ask(person, place, model, "Which clause?", SEARCH, ANSWER)
    ask_and_wait(person, place, WORDS, models=[str(model.pk)])
    Persona.objects.update(instructions="Be long.", date_awareness="off")
    BudgetProfile.objects.filter(pk=profile.pk).update(window=8_000, layout="all_first", message_overhead=9)
    Model.objects.filter(pk=model.pk).update(context_window=9_000, tokenizer="o200k_base", token_ratio=1.7)
    Reminder.objects.create(text="Something new for everybody.", scope=Reminder.Scope.EVERYWHERE)
    file = upload(person, "more.txt", b"What was added later.")
    project = Conversation.objects.get(pk=place).project_id
    person.caller.post(f"projects/{project}/files/", {"file": file["id"]}, expect=201)
    person.caller.post("tasks/", {"title": "New today", "level": "task"}, expect=201)
    assert len(equal(again(person.user))) == 2
    Reminder.objects.all().delete()


def test_what_is_gone_is_named(application: Application, person: Person) -> None:
    model, file = model_of(application), upload(person, "secret-name.txt", b"Some text.")
    place = talked(person, 1)
    ask_and_wait(person, place, "What is in it?", files=[file["id"]])
    ask_and_wait(person, place, "And you?", models=[str(model.pk)])
    person.caller.http.delete(f"files/{file['id']}/")
    model.delete()
    first, second, third = again(person.user)
    assert equal([first])
    assert [each.code for each in second.problems] == ["file_deleted"] and file["id"] in second.problems[
        0
    ].detail.english
    assert [each.code for each in third.problems] == ["file_deleted"] or third.problems[0].code == "model_deleted"
    assert (second.sent, second.planned) == (None, None)
    assert "secret-name" not in repr([each.problems for each in (second, third)])


def test_a_section_that_is_touched_and_has_changed_since_is_named(person: Person, application: Application) -> None:
    persona = Persona.objects.create(owner=person.user, name="P", replaces_system_prompt=True, instructions="Be kind.")
    talked(person, 1, persona)
    Persona.objects.filter(pk=persona.pk).update(instructions="Be cruel.", date_awareness="minute")
    other = Variation(layout="all_first")
    [result] = again(person.user, other)
    assert [each.code for each in result.problems] == ["system_changed"] and result.planned is None
    Persona.objects.filter(pk=persona.pk).update(instructions="Be kind.", date_awareness="day")
    assert again(person.user, other)[0].planned is not None


def test_another_profile_leaves_out_more_and_costs_less(application: Application, person: Person) -> None:
    model = model_of(application, input_price=2, output_price=8)
    talked(person, models=[str(model.pk)])
    narrow = BudgetProfile.objects.create(name=uuid4().hex, window=1_500, reserved_output=400)
    *_, last = again(person.user, Variation(profile=narrow))
    assert last.sent and last.planned and last.sent.cost and last.planned.cost
    assert last.sent.left_out == 0 < last.planned.left_out
    assert last.planned.tokens < last.sent.tokens and last.planned.cost < last.sent.cost
    reasons = {each["reason"] for each in last.changes if each["change"] == "changed"}
    assert "no_room" in reasons <= {"no_room", "behind_gap"}
    assert last.replanned and last.replanned.planned[-1].report["limit"] < 1_500 - 400
    tiny = BudgetProfile.objects.create(name=uuid4().hex, window=700, reserved_output=500)
    *_, refused = again(person.user, Variation(profile=tiny))
    assert refused.sent and refused.planned is None and refused.problems[0].code == "context_too_long"


def test_another_model_counts_in_its_own_way_and_has_its_own_prices(application: Application, person: Person) -> None:
    talked(person, 2)
    model = model_of(application, tokenizer="cl100k_base", tools=False, input_price=1, output_price=1)
    *_, last = again(person.user, Variation(model=model))
    assert last.replanned and last.replanned.planned[-1].report["model"] == model.name
    assert last.sent and last.sent.cost is None and last.planned and last.planned.cost


def test_a_model_without_tools_is_not_asked_a_second_time(
    application: Application, person: Person, place: str, caller_of_tools: Model
) -> None:
    ask(person, place, caller_of_tools, "Which clause?", SEARCH, ANSWER)
    [result] = again(person.user, Variation(model=model_of(application, tools=False)))
    assert result.sent and result.planned and (result.sent.calls, result.planned.calls) == (2, 1)
    assert result.replanned and result.replanned.planned[0].report["tools"] == []


def test_another_layout_is_served_from_the_cache(application: Application, person: Person, place: str) -> None:
    model = model_of(application, "responses", name="gpt-5-scripted", tools=False)
    for number in range(3):
        ask_and_wait(person, place, f"Question {number}. {WORDS * 4}", models=[str(model.pk)])
    *_, last = again(person.user, Variation(layout="all_first"))
    assert last.sent and last.planned and last.planned.cached >= last.sent.cached > 0


def test_another_version_of_the_system_prompt(application: Application, person: Person) -> None:
    talked(person, 2)
    text = "You are being tested with a longer prompt than before, word by word."
    version = save_prompt(user=None, kind=SystemPrompt, text=text, activate=False)
    *_, last = again(person.user, Variation(prompt=version))
    assert last.replanned and last.sent and last.planned and last.planned.tokens > last.sent.tokens
    system = last.replanned.planned[0].report["messages"][0]
    assert system["text"] is not None and system["text"].startswith(text) and "Today is" in system["text"]


def test_forms_and_places_of_reminders_are_compared(application: Application, person: Person, place: str) -> None:
    """The turn has a document, a persona and a reminder, and no search. Each choice changes the prompt."""
    persona = Persona.objects.create(owner=person.user, name="P", instructions="Be brief.")
    persona.reminders.add(Reminder.objects.create(text="Answer in one line.", scope=Reminder.Scope.PERSONA))
    person.caller.http.patch(f"conversations/{place}/", json={"persona": str(persona.pk), "project": None})
    note = upload(person, "note.txt", b"Twelve apples.")
    ask_and_wait(person, place, "How many?", models=[str(model_of(application, tools=False).pk)], files=[note["id"]])

    def messages(**choices: Any) -> list[Any]:
        [result] = again(person.user, Variation(**choices))
        assert result.problems == [] and result.replanned is not None
        return list(result.replanned.planned[-1].report["messages"])

    def text(rows: list[Any], section: str) -> str:
        return str(next(row for row in rows if row["section"] == section).get("text"))

    sent = messages()
    assert sent[-1]["section"] == "reminder" and "[1]" not in text(sent, "reminder")
    assert text(sent, "reminder") != "Answer in one line." and "<note>" not in text(sent, "system")
    assert text(messages(note_form="plain"), "reminder") == "Answer in one line."
    tagged = messages(note_form="tags")
    assert text(tagged, "reminder") == "<note>\nAnswer in one line.\n</note>" and "<note>" in text(tagged, "system")
    assert "<note>" in text(tagged, "persona")
    above = [row["section"] for row in messages(reminder_place="above")]
    assert above.index("reminder") < above.index("file") and above[-1] == "current"
    cited = messages(citation_reminder="always")
    assert "[1]" in text(cited, "reminder") and "Answer in one line." in text(cited, "reminder")
    profile = BudgetProfile.objects.create(name=uuid4().hex, note_form="tags", always_remind_citations=True)
    [result] = again(person.user, Variation(profile=profile, note_form="plain", citation_reminder="searched"))
    assert result.replanned is not None
    assert text(list(result.replanned.planned[-1].report["messages"]), "reminder") == "Answer in one line."


def test_a_sample_is_spread_and_the_same_every_time(application: Application, person: Person) -> None:
    for _ in range(3):
        talked(person, 3)
    sample = choose_turns(most=4, owner=person.user)
    assert sample == choose_turns(most=4, owner=person.user) and 2 <= len(sample) <= 4
    assert Turn.objects.filter(pk__in=sample).values("conversation").distinct().count() == 3


def replay(*arguments: str) -> str:
    out = StringIO()
    call_command("replay", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_writes_a_row_a_turn_and_the_sums(application: Application, person: Person) -> None:
    place = talked(person, 3)
    lines = [
        json.loads(line) for line in replay("--conversation", place, "--policy", "priority", "--json").splitlines()
    ]
    assert [line["turn"] for line in lines[:-1]] == [
        str(pk) for pk in Turn.objects.filter(conversation=UUID(place)).order_by("id").values_list("pk", flat=True)
    ]
    assert lines[-1]["totals"]["compared"] == lines[-1]["totals"]["turns"] == 3
    table = replay("--conversation", place, "--most", "2")
    assert "2 of 2 turns can be compared." in table and "WORDS" not in table


def test_the_model_answers_what_is_planned(application: Application, person: Person, place: str) -> None:
    model = model_of(application, input_price=1, output_price=1)
    ask(person, place, model, "Which clause?", SEARCH, ANSWER)
    other = model_of(application, name=application.model.set_script(uuid4().hex, {"text": "Clause 8."}))
    row = json.loads(
        replay(
            "--conversation", place, "--ask", "--json", "--model", f"{other.provider.name}/{other.name}"
        ).splitlines()[0]
    )
    assert (row["answered"], row["answers"]) == (ANSWER["text"], "Clause 8.")
    body = application.model.requests("Which clause?")[-1].body
    assert body["tool_choice"] == "none" and [each["role"] for each in body["messages"]].count("tool") == 1
    call = ModelCall.objects.get(purpose="replay", conversation=UUID(place))
    assert (call.person, call.model) == (None, other)
    down = model_of(application, url=DOWN)
    row = json.loads(replay("--conversation", place, "--ask", "--json", "--model", down.name).splitlines()[0])
    assert row["problems"][0]["code"] == "provider_unreachable" and "answers" not in row


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--conversation", "nonsense"], "no such conversation"),
        (["--conversation", str(uuid4())], "no such conversation"),
        (["--model", "nobody"], "There is no model nobody."),
        (["--profile", "nothing"], "There is no budget profile nothing."),
        (["--system-prompt", "99999"], "There is no version 99999"),
        (["--layout", "sideways"], "invalid choice"),
        (["--note-form", "brackets"], "invalid choice"),
        (["--citation-reminder", "never"], "invalid choice"),
        (["--sample", "0"], "from 1 to 1,000"),
        (["--sample", "-5"], "from 1 to 1,000"),
        (["--sample", "٣"], "from 1 to 1,000"),
        (["--ask", "--sample", "21"], "at most 20 turns"),
        (["--most", "3"], "--most needs --conversation"),
    ],
)
def test_bad_input_is_said(committed: None, arguments: list[str], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        replay(*arguments)


def test_nothing_to_plan_is_said(committed: None, person: Person) -> None:
    with pytest.raises(CommandError, match="no complete answer"):
        replay("--conversation", str(past(person.user, 1).pk))
    assert not File.objects.filter(owner=person.user).exists()
