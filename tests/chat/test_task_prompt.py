"""Tasks in the prompt that a model receives, and the places where people see them."""

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import User
from chat.models import Conversation, Mention, Message, Turn
from chat.models.queries import claim
from chat.prompts.turn_context import tasks_of_turn
from chat.rendering.markdown import render
from llm.models import Model
from personas.texts import TEXTS
from tests.application import Application
from tests.chat.conversations import past
from tests.conftest import Person

FAR_EAST, FAR_WEST = "Pacific/Kiritimati", "Pacific/Pago_Pago"  # UTC+14 and UTC-11: never the same day


def live_in(person: Person, zone: str) -> datetime:
    """Their time, now."""
    User.objects.filter(pk=person.user.pk).update(timezone=zone)
    person.user.timezone = zone
    return datetime.now(ZoneInfo(zone))


def make(person: Person, title: str, **fields: Any) -> dict[str, Any]:
    return dict(person.caller.post("tasks/", {"title": title, "level": "task", **fields}, expect=201))


def block(application: Application, question: str) -> str | None:
    """Section K of the first model call that holds these words; None when there is none."""
    messages = application.model.finished(question)[0].body["messages"]
    blocks = [m["content"] for m in messages if m["role"] == "system" and m["content"].startswith("# Tasks")]
    assert len(blocks) <= 1
    return blocks[0] if blocks else None


def prompt_of(application: Application, person: Person, text: str, place: str | None = None) -> str | None:
    mark = uuid4().hex
    turn = person.caller.ask(f"{text} {mark}", None, place)
    assert person.caller.ended(turn["id"])["status"] == "done"
    return block(application, mark)


@pytest.mark.parametrize("zone", [FAR_EAST, FAR_WEST, "UTC"])
def test_today_is_the_users_today(application: Application, person: Person, zone: str) -> None:
    now = live_in(person, zone)
    for days, title in ((-1, "Yesterday's"), (0, "Of today"), (1, "Tomorrow's")):
        make(person, title, date=(now + timedelta(days=days)).date().isoformat())
    done = make(person, "Done already")
    person.caller.http.patch(f"tasks/{done['id']}/", json={"status": "done"})
    make(person, "Of the month", horizon="month")
    text = prompt_of(application, person, "What is there to do?")
    today = datetime.now(ZoneInfo(zone)).date()
    assert text == (
        f"{TEXTS['tasks'].built_in}\nTasks of today, {today}:\n- D{today}-T01 [open] Of today (user task)\n"
        f"- D{today}-T02 [done] Done already (user task)"
    )


@pytest.mark.parametrize("zone", [FAR_EAST, FAR_WEST])
def test_what_was_mentioned_on_the_users_day_comes_along_in_every_conversation_of_that_day(
    application: Application, person: Person, zone: str
) -> None:
    now = live_in(person, zone)
    year = person.caller.post(
        "tasks/", {"title": "The year's", "level": "objective", "horizon": "year", "notes": "Why."}, expect=201
    )
    old = make(person, "An old one", date=(now - timedelta(days=40)).date().isoformat())
    other = make(person, "Another old one", date=(now - timedelta(days=41)).date().isoformat())
    assert prompt_of(application, person, "Nothing mentioned.") is None
    text = prompt_of(application, person, f"How is @{old['code'].lower()}, and @{year['code']}?")
    assert text is not None and other["code"] not in text
    assert (
        text == f"{TEXTS['tasks'].built_in}\nMentioned today:\n- {old['code']} [open] An old one (user task)\n"
        f"- {year['code']} [open] The year's (objective)\n    Why."
    )
    assert prompt_of(application, person, "In another conversation.") == text  # the same bytes while nothing changes
    yesterday = now.date() - timedelta(days=1)
    Mention.objects.filter(user=person.user).update(day=yesterday)
    assert prompt_of(application, person, "The day after.") is None
    Mention.objects.filter(user=person.user).update(day=now.date() + timedelta(days=1))
    assert prompt_of(application, person, "The day before.") is None


def test_an_item_that_is_mentioned_means_its_task_and_mentions_of_nothing_are_not_kept(
    application: Application, person: Person
) -> None:
    old = make(person, "Old", date="2020-02-29")
    item = person.caller.post("tasks/", {"title": "Part", "level": "item", "parent": old["id"]}, expect=201)
    text = prompt_of(application, person, f"What of @{item['code']}, @D2020-02-29-T77 and a@{old['code']}?")
    assert (
        text
        == f"{TEXTS['tasks'].built_in}\nMentioned today:\n- {old['code']} [open] Old (user task)\n  - .C01 [open] Part"
    )
    assert list(Mention.objects.filter(user=person.user).values_list("code", flat=True)) == [old["code"]]


def test_a_question_asked_again_later_sees_the_tasks_of_its_own_day(application: Application, person: Person) -> None:
    before = (timezone.now() - timedelta(days=3)).date()
    make(person, "Then", date=before.isoformat())
    mark = uuid4().hex
    turn = person.caller.ask(f"Then? {mark}")
    answer = person.caller.ended(turn["id"])["message"]
    Message.objects.filter(pk=person.caller.turn(turn["id"])["user_message"]).update(
        created=timezone.now() - timedelta(days=3)
    )
    again = person.caller.post(f"messages/{answer}/regenerate/")["turns"][0]
    person.caller.ended(again["id"])
    systems = [m["content"] for m in application.model.finished(mark, 2)[1].body["messages"] if m["role"] == "system"]
    assert any(f"Tasks of today, {before}" in text for text in systems)


def test_strangers_tasks_and_mentions_stay_theirs(application: Application, person: Person, stranger: Person) -> None:
    theirs = make(stranger, "Secret", date="2020-01-01")
    prompt_of(application, stranger, f"About @{theirs['code']}")
    assert prompt_of(application, person, f"About @{theirs['code']}") is None


def test_the_report_and_the_plan_list_each_task(application: Application, person: Person) -> None:
    mine = make(person, "Read the mail")
    old = make(person, "Old", date="2020-01-01")
    place = person.caller.conversation()
    draft = f"And @{old['code']}?"
    plan = person.caller.post(f"conversations/{place}/plan/", {"text": draft}, expect=200)
    turn = person.caller.ask(draft, None, place)
    person.caller.ended(turn["id"])
    report = person.caller.get(f"turns/{turn['id']}/report/")
    expected = [
        ("task", mine["code"], f"{mine['code']} Read the mail", "full"),
        ("task", old["code"], f"{old['code']} Old", "full"),
    ]
    for each in (plan, report):
        tasks = [(s["kind"], s["id"], s["title"], s["state"]) for s in each["sources"] if s["kind"] == "task"]
        assert tasks == expected
        assert each["sections"]["tasks"] == next(s["tokens"] for s in each["sources"] if s["kind"] == "tasks") > 0
    person.caller.http.patch(f"tasks/{mine['id']}/", json={"title": "Another title"})
    client = signed_in(person)
    panel = client.get(f"/turns/{turn['id']}/report/", headers={"HX-Request": "true"}).content.decode()
    assert f"{mine['code']} Read the mail" in panel and "in full" in panel and "Tasks" in panel
    later = person.caller.ask("Then?", None, place)
    person.caller.ended(later["id"])
    assert "Another title" in str(person.caller.get(f"turns/{later['id']}/report/")["sources"])


def signed_in(person: Person) -> Client:
    client = Client()
    client.force_login(person.user)
    return client


def turn_of(person: Person, model: Model, **fields: Any) -> Turn:
    conversation = past(person.user, 1)
    Conversation.objects.filter(pk=conversation.pk).update(**fields)
    question, answer = conversation.messages.order_by("depth")
    return Turn.objects.create(
        conversation=conversation, user_message=question, answer=answer, model=model, heartbeat=timezone.now()
    )


def test_somebody_without_tasks_pays_no_query_and_others_two(person: Person, scripted_model_row: Model) -> None:
    def read() -> tuple[int, bool]:
        turn = claim(turn_of(person, scripted_model_row).pk)
        assert turn is not None
        with CaptureQueriesContext(connection) as captured:
            tasks = tasks_of_turn(turn)
        return len(captured), bool(tasks and tasks.today)

    assert read() == (0, False)
    make(person, "One")
    assert read() == (2, True)


def test_a_conversation_of_openais_protocol_has_no_tasks(person: Person, scripted_model_row: Model) -> None:
    make(person, "One")
    turn = claim(turn_of(person, scripted_model_row, origin=Conversation.Origin.API).pk)
    assert turn is not None
    assert tasks_of_turn(turn) is None


LINK = '<a href="/tasks/code/{code}/" class="mention" target="_blank" rel="noopener noreferrer nofollow">{text}</a>'


def test_mentions_in_answers_become_links_outside_of_code_and_links() -> None:
    def link(text: str, code: str) -> str:
        return LINK.format(code=code, text=text)

    code = "D2026-11-21-T02"
    assert render(f"See @{code}.C03, @{code.lower()}!") == [
        f"<p>See {link(f'@{code}.C03', f'{code}.C03')}, {link(f'@{code.lower()}', code)}!</p>"
    ]
    assert render(f"**@{code}**") == [f"<p><strong>{link(f'@{code}', code)}</strong></p>"]
    for text in (f"`@{code}`", f"```\n@{code}\n```", f"a@{code}", f"@{code}0", "@D2026-13-21-T02", "@D2026-11-21-T00"):
        assert "mention" not in render(text)[0] and "@" in render(text)[0]
    assert "mention" not in render(f"[to @{code}](https://example.org)")[0]
    assert render(f"@{code}@{code}")[0].count('class="mention"') == 1


def test_mentions_in_questions_become_links_and_nothing_else_does(application: Application, person: Person) -> None:
    mine = make(person, "Mine")
    item = person.caller.post("tasks/", {"title": "Part", "level": "item", "parent": mine["id"]}, expect=201)
    turn = person.caller.ask(f"<b>@{mine['code']}</b> & @{item['code']}")
    person.caller.ended(turn["id"])
    client = signed_in(person)
    page = client.get(f"/c/{turn['conversation']}/").content.decode()
    assert (
        f'&lt;b&gt;<a class="mention" href="/tasks/code/{mine["code"]}/">@{mine["code"]}</a>&lt;/b&gt; &amp; ' in page
    )
    for code in (mine["code"], item["code"].lower()):
        assert client.get(f"/tasks/code/{code}/")["Location"] == f"/tasks/{mine['id']}/"
    for code in ("D2020-01-01-T01", "nonsense", mine["id"]):
        assert client.get(f"/tasks/code/{code}/").status_code == 404


def test_what_may_be_meant_is_offered_by_code_title_and_name(
    application: Application, person: Person, stranger: Person
) -> None:
    make(stranger, "Mail to a stranger")
    today, old = make(person, "Read the mail"), make(person, "Old mail", date="2020-01-01")
    item = person.caller.post("tasks/", {"title": "Part of mail", "level": "item", "parent": old["id"]}, expect=201)
    person.caller.http.post("files/", files={"file": ("mail.txt", b"Hello.")})
    client = signed_in(person)

    def offered(typed: str) -> list[str]:
        html = client.get("/mentions/", {"q": typed}).content.decode()
        return [line.split('"')[1] for line in html.splitlines() if "data-insert" in line]

    assert offered("mail") == [f"@{today['code']}", f"@{old['code']}"]
    assert offered("d2020") == [f"@{old['code']}"]
    assert offered(item["code"]) == [f"@{item['code']}"]
    assert offered("nothing of the kind") == []
    assert json.dumps("stranger") not in client.get("/mentions/").content.decode()
