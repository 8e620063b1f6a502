"""Tokens that providers' caches serve in real turns, the expected number, and the reason for a smaller one."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from accounts.models import User
from chat.context.cache import PromptPiece, SentPrompt, tokens_to_write
from chat.models import LastPrompt, Message, Turn
from chat.prompts import inspector, wording
from llm.models import Model, Provider
from llm.types.model_call import CacheRule
from personas.models import BudgetProfile, Persona
from tests.application import Application
from tests.chat.documents import ask_and_wait, upload
from tests.conftest import Person
from tests.product import until

# The name of a model: the kind of its provider and the vendor whose rules the server has.
VENDORS = {
    "claude-opus-5-5": ("anthropic", ""),
    "gpt-5.6-terra": ("responses", ""),
    "gpt-5.4": ("responses", ""),
    "llama-4": ("openai", ""),
    "deepseek-v4": ("openai", "deepseek"),
}
# Twenty turns each take long: `make test` has one model with marks in the request and one without.
QUICK = ("claude-opus-5-5", "llama-4")
TWENTY_TURNS = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in VENDORS if name not in QUICK)]
SENTENCE = "Clause {}: the party of that number pays for its own counsel."


def model_of(application: Application, name: str, **more: Any) -> Model:
    kind, vendor = VENDORS[name]
    path = (application.model.url, vendor, "v1" if kind in ("openai", "responses") else "")
    url = "/".join(part for part in path if part)
    provider = Provider.objects.create(name=f"{name} {uuid4().hex[:8]}", kind=kind, base_url=url)
    # Each test has a cache of its own, as every model has.
    unique_name = f"{name}-{uuid4().hex[:8]}"
    return Model.objects.create(provider=provider, name=unique_name, context_window=64_000, **{"tools": True, **more})


def place_of(person: Person, layout: str, clauses: int = 200, **persona: Any) -> str:
    """A conversation in a project with a file of that many clauses, 15 tokens each, with a persona, in a layout."""
    text = " ".join(SENTENCE.format(number) for number in range(clauses))
    file = upload(person, "contract.txt", text.encode())
    # Until then there is no tool to search it with, and another tool is another beginning.
    until(lambda: person.caller.get(f"files/{file['id']}/")["searchable"], "it has been indexed")
    project = person.caller.post("projects/", {"name": "Contracts", "instructions": "Be exact."}, expect=201)
    person.caller.post(f"projects/{project['id']}/files/", {"file": file["id"]}, expect=201)
    profile = BudgetProfile.objects.create(name=f"{layout} {uuid4().hex[:8]}", layout=layout)
    defaults = {"name": "Lawyer", "instructions": "Be brief.", "owner": person.user, "budget_profile": profile}
    row = Persona.objects.create(**{**defaults, **persona})
    body = {"project": project["id"], "persona": str(row.pk)}
    return str(person.caller.post("conversations/", body, expect=201)["id"])


def calls(turn: dict[str, Any]) -> list[dict[str, Any]]:
    stored: list[dict[str, Any]] = Turn.objects.get(pk=turn["id"]).report["calls"]
    return stored


@pytest.mark.parametrize("name", TWENTY_TURNS)
def test_twenty_turns_over_a_projects_files_come_from_the_cache(
    name: str, application: Application, person: Person
) -> None:
    model, place = model_of(application, name), place_of(person, "files_first", clauses=1_700)
    read = total = 0
    for number in range(20):
        text = f"What does clause {number} say? {uuid4().hex}"
        plan = person.caller.post(f"conversations/{place}/plan/", {"text": text, "model": str(model.pk)}, expect=200)
        turn = ask_and_wait(person, place, text, models=[str(model.pk)])
        [cache] = [call["cache"] for call in calls(turn)]
        assert cache["expected"] == plan["cache"]["expected"]
        usage = turn["usage"]
        assert (
            cache["read"] == usage["cached_input"]
            and cache["read"] + cache["written"] + cache["uncached"] == usage["input"]
        )
        if number:
            read, total = read + cache["read"], total + usage["input"]
            assert cache["expected"] > 15_000, (number, cache)
            assert abs(cache["expected"] - cache["read"]) < 0.3 * cache["read"], (number, cache)
    assert read / total >= 0.9, f"{read} of {total}"


def changed_instructions(person: Person, place: str) -> None:
    conversation = person.caller.get(f"conversations/{place}/")
    person.caller.http.patch(f"projects/{conversation['project']}/", json={"instructions": "Be kind."})


def changed_persona(person: Person, place: str) -> None:
    conversation = person.caller.get(f"conversations/{place}/")
    person.caller.http.patch(f"personas/{conversation['persona']}/", json={"instructions": "Be verbose."})


def another_day(person: Person, _: str) -> None:
    """It is never the same day on both sides of the date line's farthest zones."""
    User.objects.filter(pk=person.user.pk).update(timezone="Pacific/Kiritimati")


def other_tools(person: Person, place: str) -> None:
    conversation = person.caller.get(f"conversations/{place}/")
    person.caller.http.patch(f"personas/{conversation['persona']}/", json={"tools": ["tasks"]})


def another_file(person: Person, place: str) -> None:
    file = upload(person, "addendum.txt", b"An addendum.")
    until(lambda: person.caller.get(f"files/{file['id']}/")["searchable"], "it has been indexed")
    conversation = person.caller.get(f"conversations/{place}/")
    person.caller.post(f"projects/{conversation['project']}/files/", {"file": file["id"]}, expect=201)


Break = Callable[[Person, str], None]


def nothing(_: Person, __: str) -> None:
    pass


@pytest.mark.parametrize(
    ("name", "layout", "change", "section", "reason"),
    [
        ("claude-opus-5-5", "files_first", another_day, "system", "date_changed"),
        ("llama-4", "files_first", another_day, "system", "date_changed"),
        ("claude-opus-5-5", "files_first", other_tools, "tools", "tools_changed"),
        ("llama-4", "files_first", other_tools, "tools", "tools_changed"),
        ("claude-opus-5-5", "near_end", nothing, "persona", "persona_moved"),
        ("llama-4", "near_end", nothing, "persona", "persona_moved"),
        ("claude-opus-5-5", "all_first", changed_instructions, "persona", "project_changed"),
        ("llama-4", "all_first", changed_persona, "persona", "persona_changed"),
        ("gpt-5.6-terra", "files_first", another_file, "project_files", "files_changed"),
    ],
)
def test_what_breaks_the_beginning_of_the_prompt_is_named(
    name: str, layout: str, change: Break, section: str, reason: str, application: Application, person: Person
) -> None:
    model, place = model_of(application, name), place_of(person, layout)
    User.objects.filter(pk=person.user.pk).update(timezone="Pacific/Niue")
    ask_and_wait(person, place, "What is it about?", models=[str(model.pk)])
    change(person, place)
    text = "And then?"
    plan = person.caller.post(f"conversations/{place}/plan/", {"text": text, "model": str(model.pk)}, expect=200)
    turn = ask_and_wait(person, place, text, models=[str(model.pk)])
    [call] = calls(turn)
    for cache in (plan["cache"], call["cache"]):
        assert (cache["missed_section"], cache["reason"]) == (section, reason)
    panel = inspector.of_turn(Turn.objects.get(pk=turn["id"]))
    assert panel is not None and str(wording.CACHE_REASONS[reason]) in panel.missed


LOOK: dict[str, Any] = {
    "steps": [{"tool_calls": [{"name": "list_tasks", "arguments": {}}]}, {"text": "Nothing to do."}]
}


@pytest.mark.parametrize(
    ("name", "reasoning", "reason"),
    [
        ("claude-opus-5-5", "", "result_stubbed"),
        ("llama-4", "", "result_stubbed"),
        ("claude-opus-5-5", "I look.", "reasoning_dropped"),
        ("gpt-5.6-terra", "I look.", "reasoning_dropped"),
    ],
)
def test_what_an_older_turn_loses_is_the_reason_in_the_next(
    name: str, reasoning: str, reason: str, application: Application, person: Person
) -> None:
    model, place = model_of(application, name), place_of(person, "all_first", tools=["tasks"])
    script = {"steps": [{**LOOK["steps"][0], "reasoning": reasoning}, LOOK["steps"][1]]}
    person.caller.ended(person.caller.ask("What is to be done?", script, place, models=[str(model.pk)])["id"])
    [call] = calls(ask_and_wait(person, place, "And then?", models=[str(model.pk)]))
    assert (call["cache"]["missed_section"], call["cache"]["reason"]) == ("history", reason)
    assert call["cache"]["read"] > 2_000


@pytest.mark.parametrize("name", VENDORS)
def test_within_a_turn_the_call_before_comes_from_the_cache(
    name: str, application: Application, person: Person
) -> None:
    model, place = model_of(application, name), place_of(person, "files_first", tools=["tasks"])
    started = person.caller.ask("What is to be done?", LOOK, place, models=[str(model.pk)])
    [first, second] = calls(person.caller.ended(started["id"]))
    assert first["cache"]["read"] == 0
    assert second["cache"]["expected"] > 3_000 and second["cache"]["read"] > 3_000
    assert second["cache"]["uncached"] < 500


def test_a_reminder_that_moves_is_named(application: Application, person: Person) -> None:
    model, place = model_of(application, "llama-4"), place_of(person, "all_first", date_awareness="minute")
    ask_and_wait(person, place, "What is it about?", models=[str(model.pk)])
    [call] = calls(ask_and_wait(person, place, "And then?", models=[str(model.pk)]))
    assert (call["cache"]["missed_section"], call["cache"]["reason"]) == ("reminder", "reminder_moved")
    assert call["cache"]["read"] > 2_000


def test_another_model_has_nothing_in_its_cache_and_the_first_one_still_has(
    application: Application, person: Person
) -> None:
    first, second = model_of(application, "llama-4"), model_of(application, "claude-opus-5-5")
    place = place_of(person, "all_first")
    results = []
    for model in (first, second, first):
        [call] = calls(ask_and_wait(person, place, "What is it about?", models=[str(model.pk)]))
        results.append((call["cache"]["reason"], call["cache"]["expected"] > 2_000, call["cache"]["read"] > 2_000))
    assert results == [(None, False, False), ("model_changed", False, False), (None, True, True)]


def test_another_branch_is_named(application: Application, person: Person) -> None:
    model, place = model_of(application, "llama-4"), place_of(person, "all_first")
    turn = ask_and_wait(person, place, "What is it about?", models=[str(model.pk)])
    question = Message.objects.get(children=turn["message"])
    ask_and_wait(person, place, "And what else?", models=[str(model.pk)])
    edited = person.caller.post(f"messages/{question.pk}/edit/", {"text": "Something else?"})["turns"][0]
    [call] = calls(person.caller.ended(edited["id"]))
    assert (call["cache"]["missed_section"], call["cache"]["reason"]) == ("current", "branch_changed")


def test_a_provider_that_forgot_is_named(application: Application, person: Person) -> None:
    model, place = model_of(application, "claude-opus-5-5"), place_of(person, "all_first")
    ask_and_wait(person, place, "What is it about?", models=[str(model.pk)])
    application.model.forget_prompts()
    turn = ask_and_wait(person, place, "And then?", models=[str(model.pk)])
    [call] = calls(turn)
    assert call["cache"]["expected"] > 2_000 and call["cache"]["read"] == 0
    assert call["cache"]["reason"] == "not_kept"
    panel = inspector.of_turn(Turn.objects.get(pk=turn["id"]))
    assert panel is not None and "did not have it any more" in panel.missed


def test_anthropic_is_asked_what_changed_since_its_last_answer(application: Application, person: Person) -> None:
    model, place = model_of(application, "claude-opus-5-5"), place_of(person, "all_first")
    mark = uuid4().hex
    ask_and_wait(person, place, f"What is it about? {mark}", models=[str(model.pk)])
    first = application.model.finished(mark)[0].body
    assert first["diagnostics"] == {"previous_message_id": None}
    [last] = LastPrompt.objects.filter(conversation_id=place)
    assert last.prompt["answer"].startswith("msg_")
    mark = uuid4().hex
    ask_and_wait(person, place, f"And then? {mark}", models=[str(model.pk)])
    second = application.model.finished(mark)[0].body
    assert second["diagnostics"] == {"previous_message_id": last.prompt["answer"]}


def test_what_the_provider_says_has_changed_goes_before_what_was_found_here(
    application: Application, person: Person
) -> None:
    model, place = model_of(application, "claude-opus-5-5"), place_of(person, "all_first")
    ask_and_wait(person, place, "What is it about?", models=[str(model.pk)])
    application.model.forget_prompts()
    row = LastPrompt.objects.get(conversation_id=place)
    # The provider is asked to compare with an answer to another conversation.
    other_place = person.caller.conversation()
    ask_and_wait(person, other_place, "Something else?", models=[str(model.pk)])
    row.prompt["answer"] = LastPrompt.objects.get(conversation_id=other_place).prompt["answer"]
    row.save()
    [call] = calls(ask_and_wait(person, place, "And then?", models=[str(model.pk)]))
    assert call["cache"]["read"] == 0
    assert (call["cache"]["missed_section"], call["cache"]["reason"]) == ("system", "system_changed")


def test_what_is_longer_ago_than_the_provider_keeps_is_not_promised(application: Application, person: Person) -> None:
    model, place = model_of(application, "claude-opus-5-5"), place_of(person, "all_first")
    ask_and_wait(person, place, "What is it about?", models=[str(model.pk)])
    row = LastPrompt.objects.get(conversation_id=place)
    row.prompt["at"] -= 301
    row.save()
    application.model.forget_prompts()
    [call] = calls(ask_and_wait(person, place, "And then?", models=[str(model.pk)]))
    assert (call["cache"]["expected"], call["cache"]["read"], call["cache"]["reason"]) == (0, 0, "expired")


@pytest.mark.parametrize(
    ("rule", "points", "served", "put"),
    [
        (CacheRule(points="any"), (1, 3), 0, 6_000),  # up to the last point, not to the end
        (CacheRule(points="any"), (1, 3), 3_000, 3_000),
        (CacheRule(points="any"), (1, 3), 6_000, 0),
        (CacheRule(points="user"), (4,), 1_000, 9_000),
        (CacheRule(points="any", min_tokens=7_000), (1, 3), 0, 0),  # too short to be kept
        (CacheRule(points="any"), (), 0, 0),
        (CacheRule(), (1, 3), 0, 0),  # it keeps everything by itself, and asks nothing for that
    ],
)
def test_what_a_provider_will_bill_as_written_to_its_cache(
    rule: CacheRule, points: tuple[int, ...], served: int, put: int
) -> None:
    pieces = tuple(PromptPiece("history", size * 1_000, str(size), "", "full", 1) for size in (1, 2, 3, 4))
    assert tokens_to_write(SentPrompt(pieces, points, "", {}, 0.0), served, rule) == put
