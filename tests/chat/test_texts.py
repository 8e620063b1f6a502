"""Texts of an administrator: in prompts, in reports, and on the admin's pages."""

import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from accounts.models import User
from chat.lab.services import choose_turns, plan_turns
from chat.models import Turn
from chat.runs import prompts
from chat.texts.examples import example
from llm.models import Model
from personas.models import PromptText
from personas.services import save_text, use_built_in_text
from personas.texts import BUILT_IN, TEXTS, Texts, TextVersion
from projects.planner.models.task import Task
from tests.application import Application
from tests.chat.citing import ANSWER, CLAUSE, SEARCH, ask
from tests.chat.conversations import past
from tests.chat.documents import ask_and_wait, picture, upload
from tests.conftest import Person
from tests.product import until

HOME = "admin:personas_prompttext_changelist"


@pytest.fixture
def written(committed: None) -> Iterator[None]:
    yield
    PromptText.objects.all().delete()


def write(**texts: str) -> None:
    for name, text in texts.items():
        save_text(user=None, name=name, text=text)


def test_every_text_is_shown_in_the_place_where_it_stands() -> None:
    for name in TEXTS:
        shown = example(name, BUILT_IN)
        pieces = [piece for message in shown for piece, looked_at in message.pieces if looked_at]
        first = re.split(r"\{[a-z]+\}", TEXTS[name].built_in, maxsplit=1)[0].strip()
        assert pieces and first in pieces[0], name
        assert "\ue000" not in str(shown) and "\ue001" not in str(shown)
        own = example(name, Texts({name: TextVersion(1, f"Mine. {TEXTS[name].built_in}")}))
        assert any("Mine. " in piece for message in own for piece, looked_at in message.pieces if looked_at), name


def test_an_empty_text_leaves_the_rest_of_the_prompt() -> None:
    for name, text in TEXTS.items():
        if text.may_be_empty:
            shown = example(name, Texts({name: TextVersion(1, "")}))
            assert shown and not any(message.marked for message in shown), name


def test_a_model_gets_what_was_written_and_the_report_names_the_versions(
    application: Application, person: Person, place: str, caller_of_tools: Model, written: None
) -> None:
    write(guidance_search_files="Old guidance.", tool_result_stub="(gone)", day="Heute ist der {date}.")
    write(guidance_search_files="Look there first.", guidance_read_file="", citations="Zitiere wie [1].")
    write(citation_reminder="", documents="Unterlagen:", image_unseen="(kein Bild)", title="Not in a prompt.")
    mark, later = uuid4().hex, uuid4().hex
    ask(person, place, caller_of_tools, f"Which clause? {mark}", SEARCH, ANSWER)
    first, second = (record.body["messages"] for record in application.model.finished(mark, 2)[:2])
    lines = first[0]["content"].splitlines()
    assert "search_files: Look there first." in lines and not any(line.startswith("read_file") for line in lines)
    assert re.fullmatch(r"Heute ist der \d{4}-\d\d-\d\d\.", lines[-1])
    assert "Zitiere wie [1]." in second[0]["content"] and second[-1]["role"] == "tool"
    note, image = upload(person, "note.txt", b"Twelve apples."), upload(person, "shot.png", picture())
    files = [note["id"], image["id"]]
    turn = ask_and_wait(person, place, f"And now? {later}", models=[str(caller_of_tools.pk)], files=files)
    messages = application.model.finished(later)[0].body["messages"]
    assert [each["content"] for each in messages if each["role"] == "tool"] == ["(gone)"]
    above, _, body = messages[-2]["content"].partition("\n")
    assert above == "Unterlagen:" and json.loads(body)["documents"][1]["contents"] == "(kein Bild)"
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert {name: version for name, version in report["versions"].items() if name in TEXTS} == {
        "guidance_search_files": "2", "tool_result_stub": "1", "day": "1", "guidance_read_file": "1",
        "citations": "1", "citation_reminder": "1", "documents": "1", "image_unseen": "1",
    }  # fmt: skip
    for name in ("documents", "tool_result_stub"):
        use_built_in_text(user=User(is_superuser=True, is_staff=True), name=name)
    again = person.caller.get(f"turns/{turn['id']}/report/")  # whatever is sent now
    assert again["messages"] == report["messages"] and CLAUSE not in messages[-2]["content"]
    assert [message["text"] for message in again["messages"]][-2:] == [each["content"] for each in messages[-2:]]
    broken = {sentence.partition(":")[0] for sentence in application.model.take_broken_rules()}
    # These rules know the built-in words alone.
    assert broken == {"citations_are_asked_for_after_a_search", "results_of_older_turns_are_stubs"}


def test_a_stored_turn_is_planned_again_under_its_own_texts(
    application: Application, person: Person, scripted_model_row: Model, written: None
) -> None:
    write(omission_note="(cut)", answer_stopped="(stopped)")
    model = Model.objects.create(provider=scripted_model_row.provider, name=uuid4().hex, context_window=2_000)
    conversation = past(person.user, 40, status="stopped")
    ask_and_wait(person, str(conversation.pk), "And then?", models=[str(model.pk)])
    turns = choose_turns(most=10, owner=person.user)
    write(omission_note="(more)")
    [result] = plan_turns(turns)
    assert result.problems == [] and result.planned == result.sent
    assert "(cut)" in str(application.model.finished("And then?")[-1].body)
    PromptText.objects.filter(name="omission_note").delete()
    [result] = plan_turns(turns)
    assert (result.problems[0].code, result.problems[0].detail.english) == (
        "text_deleted",
        "The version of “In place of messages left out” was deleted.",
    )
    turn = Turn.objects.get(conversation=conversation)
    turn.report["calls"][0]["made_with"]["texts"] = "other"
    turn.save()
    [result] = plan_turns(turns)
    assert "built_in_texts_changed" in [problem.code for problem in result.problems]


def test_a_title_is_asked_for_in_the_words_that_were_written(
    application: Application, person: Person, written: None
) -> None:
    write(title="Name it in one word.")
    mark = uuid4().hex
    person.caller.ended(person.caller.ask(f"Name me {mark}")["id"])
    until(lambda: application.model.requests("Name it in one word."), "the title is asked for")


def test_a_run_asks_in_the_words_that_were_written() -> None:
    row = Task(code="D2026-11-21-T02.C01", title="Buy", notes="Two.")
    texts = Texts({"run_item": TextVersion(1, "{item} – that is {code}.")})
    assert (
        prompts.item_message(row, texts, again=False, reply="Yes.")
        == "Yes.\n\nBuy\n\nTwo. – that is @D2026-11-21-T02.C01."
    )
    built_in = prompts.item_message(row, BUILT_IN, again=False, reply="")
    assert built_in.startswith("Item @D2026-11-21-T02.C01:\n\nBuy\n\nTwo.\n\nDo this item now")


def page(kind: str, **query: object) -> str:
    return reverse(f"admin:personas_prompttext_{kind}", query=query or None)


def text_page(name: str) -> str:
    return reverse("admin:personas_prompttext_text", args=[name])


def form(text: str, based_on: int = 0, **changes: Any) -> dict[str, Any]:
    return {"text": text, "note": "", "activate": "on", "based_on": based_on} | changes


@pytest.mark.django_db
def test_a_text_is_written_compared_and_brought_back_in_the_admin(admin_client: Client) -> None:
    home = admin_client.get(reverse(HOME)).content.decode()
    assert all(text_page(name) in home for name in TEXTS) and f"Now all {len(TEXTS)} are the built-in ones." in home
    began = admin_client.get(page("add", name="citations")).content.decode()
    assert TEXTS["citations"].built_in in began
    stored = admin_client.post(page("add", name="citations"), form("Cite\r\nA.", note="shorter"))
    assert stored["Location"] == text_page("citations")
    admin_client.post(page("add", name="citations"), form("", 1))
    versions = {row.version: row for row in PromptText.objects.filter(name="citations")}
    assert (versions[1].text, versions[1].active, versions[2].text, versions[2].active) == ("Cite\nA.", False, "", True)
    assert "version 2 by admin" in admin_client.get(reverse(HOME)).content.decode()
    shown = admin_client.get(text_page("citations")).content.decode()
    assert "Use the built-in text" in shown and "Nothing is sent." in shown
    began = admin_client.get(page("add", name="citations", **{"from": 1})).content.decode()
    assert "Cite\nA." in began
    compared = admin_client.get(page("compare", name="citations", old=0, new=1)).content.decode()
    assert "<ins>A</ins>" in compared or "<ins>Cite</ins>" in compared
    change = reverse("admin:personas_prompttext_change", args=[versions[1].pk])
    assert "Documents and citations, version 1" in admin_client.get(change).content.decode()
    use = reverse("admin:personas_prompttext_use", args=["citations"])
    for version, active in ((1, [1]), (0, [])):
        assert admin_client.post(use, {"version": version})["Location"] == text_page("citations")
        assert [row.version for row in PromptText.objects.filter(active=True)] == active
    assert admin_client.post(use, {"version": 7}).status_code == 404
    assert admin_client.get(text_page("nothing")).status_code == 404


@pytest.mark.django_db
def test_what_cannot_be_sent_is_refused_and_kept_in_the_form(admin_client: Client) -> None:
    refused = admin_client.post(page("add", name="run_item"), form("Do {item} soon.")).content.decode()
    assert "The text lacks {code}" in refused and "Do {item} soon." in refused
    assert "This field is required" in admin_client.post(page("add", name="title"), form(" ")).content.decode()
    save_text(user=None, name="title", text="By another.")
    late = admin_client.post(page("add", name="title"), form("Mine."))
    assert "v1 by the product became active while you were writing" in late.content.decode()
    assert PromptText.objects.count() == 1
    preview = page("preview", name="run_item")
    assert "The text lacks {item}" in admin_client.post(preview, {"text": "Do {code}."}).content.decode()
    shown = admin_client.post(preview, {"text": "Do {item} as {code} <b>"}).content.decode()
    assert "<mark>Do Write three sentences" in shown and "@D2026-11-21-T02.C01 &lt;b&gt;</mark>" in shown


@pytest.mark.django_db
def test_who_may_only_look_changes_nothing(client: Client) -> None:
    clerk = User.objects.create_user("clerk", is_staff=True)
    client.force_login(clerk)
    assert client.get(reverse(HOME)).status_code == client.get(text_page("title")).status_code == 403
    clerk.user_permissions.add(Permission.objects.get(codename="view_prompttext"))
    looked = client.get(text_page("title")).content.decode()
    assert "What the model gets" in looked and "Edit</a>" not in looked
    assert client.post(page("add", name="title"), form("Mine.")).status_code == 403
    assert client.post(reverse("admin:personas_prompttext_use", args=["title"]), {"version": 0}).status_code == 403
    assert not PromptText.objects.exists()
