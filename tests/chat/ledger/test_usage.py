"""Usage of a person: the API, and the words under an answer."""

import csv
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from io import StringIO
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.utils.translation import override

from accounts.models import Limit, PeopleGroup, User
from chat.ledger.models import ModelCall
from chat.ledger.services import describe_usage, sum_usage
from chat.models import Conversation
from core.i18n import dollars
from llm.models import Model
from personas.models import Persona
from projects.models import Project
from tests.conftest import Person


@pytest.fixture
def priced(scripted_model_row: Model) -> Iterator[Model]:
    prices = {"input_price": Decimal(3), "output_price": Decimal(15), "cached_input_price": Decimal("0.3")}
    Model.objects.filter(pk=scripted_model_row.pk).update(**prices, token_ratio=1.0, ratio_samples=0)
    yield scripted_model_row
    Model.objects.filter(pk=scripted_model_row.pk).update(**dict.fromkeys(prices))


def call(person: Person, at: datetime | None = None, cost: str | None = "0.5", **fields: Any) -> ModelCall:
    values = {"input": 1_000, "cached_input": 600, "output": 50, "model_name": "one", "provider_name": "Here", **fields}
    row = ModelCall.objects.create(
        person=person.user, purpose="answer", cost=None if cost is None else Decimal(cost), **values
    )
    if at is not None:
        ModelCall.objects.filter(pk=row.pk).update(created=at)
    return row


def usage(person: Person, **query: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = person.caller.get(f"me/usage/?{urlencode(query)}")["results"]
    return rows


def test_a_day_is_one_of_the_persons_time_zone(person: Person) -> None:
    person.user.timezone = "Asia/Ho_Chi_Minh"
    person.user.save()
    call(person, datetime(2026, 11, 1, 16, 59, tzinfo=UTC))  # one minute before midnight there
    call(person, datetime(2026, 11, 1, 17, 1, tzinfo=UTC), cost="0.25")
    second, first = usage(person)
    assert [first["key"], second["key"]] == ["2026-11-01", "2026-11-02"]
    assert (first["money"], second["money"]) == ("0.5", "0.25")
    assert [row["key"] for row in usage(person, **{"from": "2026-11-02", "to": "2026-11-02"})] == ["2026-11-02"]


def test_sums_are_by_model_conversation_and_project_and_agree(person: Person, scripted_model_row: Model) -> None:
    project = Project.objects.create(owner=person.user, name="Bridge")
    conversation = Conversation.objects.create(owner=person.user, title="Talk", project=project)
    call(person, model=scripted_model_row, conversation=conversation, project=project)
    call(person, model=scripted_model_row, conversation=conversation, cost=None)
    call(person, cost="0.000000000001")
    for by in ("day", "model", "conversation", "project", "persona", "group", "token", "purpose"):
        rows = usage(person, by=by)
        assert sum(row["calls"] for row in rows) == 3 and sum(row["input"] for row in rows) == 3_000
        assert sum(Decimal(row["money"] or 0) for row in rows) == Decimal("0.500000000001")
    by_project = {row["name"]: row for row in usage(person, by="project")}
    assert by_project["Bridge"]["key"] == str(project.pk) and by_project[None]["unpriced"] == 1
    [one] = usage(person, by="conversation", conversation=str(conversation.pk))
    expected = {"calls": 2, "input": 2_000, "cached": 1_200, "output": 100, "money": "0.5", "name": "Talk"}
    assert {name: one[name] for name in expected} == expected


def test_nobody_sees_what_others_used(person: Person, stranger: Person) -> None:
    call(stranger)
    assert usage(person) == []


def test_pages_have_every_row_once(person: Person) -> None:
    for day in range(1, 8):
        call(person, datetime(2026, 10, day, 12, tzinfo=UTC))
    seen, page = [], person.caller.get("me/usage/?page_size=3")
    while True:
        seen += [row["key"] for row in page["results"]]
        if page["next"] is None:
            break
        page = person.caller.get(page["next"].partition("/api/v1/")[2])
    assert seen == [f"2026-10-0{day}" for day in range(7, 0, -1)]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"by": "weather"}, "invalid"),
        ({"from": "yesterday"}, "invalid"),
        ({"conversation": "that one"}, "invalid"),
        ({"from": "2026-02-02", "to": "2026-02-01"}, "bad_range"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_words(person: Person, query: dict[str, str], code: str) -> None:
    refused = person.caller.get(f"me/usage/?{urlencode(query)}", expect=400)
    assert refused["code"] == code and refused["detail"]


def test_days_at_the_ends_of_time_are_no_failure(person: Person) -> None:
    call(person)
    assert len(usage(person, **{"from": "0001-01-01", "to": "9999-12-31"})) == 1


def test_an_answer_and_its_turn_say_what_they_cost_and_the_panel_in_words(person: Person, priced: Model) -> None:
    script = {"text": "Yes.", "usage": {"input": 1_234, "cached": 1_000, "output": 200}}
    turn = person.caller.ask("What is it?", script)
    ended = person.caller.ended(turn["id"])
    assert ended["cost"] == "0.004002"
    answer = person.caller.get(f"messages/{ended['message']}/")
    assert answer["cost"] == "0.004002"
    question = person.caller.get(f"messages/{ended['user_message']}/")
    assert question["cost"] is None
    words = "1,234 read, 1,000 of them cached, 200 written · $0.0040"
    assert describe_usage(sum_usage(ModelCall.objects.filter(turn=turn["id"]))) == words
    client = Client()
    client.force_login(person.user)
    assert "· &lt; $0.01" in client.get(f"/c/{turn['conversation']}/").content.decode()
    panel = client.get(f"/turns/{turn['id']}/report/").content.decode()
    assert words in panel and "The whole conversation so far" in panel


def test_words_say_which_calls_have_no_price(person: Person) -> None:
    call(person, cost=None)
    mine = ModelCall.objects.visible_to(person.user)
    assert describe_usage(sum_usage(mine)) == "1,000 read, 600 of them cached, 50 written"
    call(person, cached_input=0)
    words = "2,000 read, 600 of them cached, 100 written · $0.50, and 1 call without a price"
    assert describe_usage(sum_usage(mine)) == words


def test_a_share_of_a_limit_and_the_button_that_shares_are_two_words_in_vietnamese(person: Person) -> None:
    Limit.objects.create(user=person.user, unit=Limit.Unit.TOKENS, amount=10_000, per=Limit.Per.DAY)
    User.objects.filter(pk=person.user.pk).update(language="vi")
    client = Client()
    client.force_login(person.user)
    columns = re.findall(r'<th [^>]*scope="col">(.*?)</th>', client.get("/usage/").content.decode())
    with override("vi"):
        button = render_to_string("ui/_share_with_group.html", {"action": "", "groups": [], "roles": []})
    assert len(columns) >= 5
    assert not [column for column in columns if f">{column}</button>" in button]


def test_the_page_of_a_month_and_its_table_to_take_along(person: Person, scripted_model_row: Model) -> None:
    conversation = Conversation.objects.create(owner=person.user, title="About bridges")
    call(person, datetime(2026, 9, 5, tzinfo=UTC), conversation=conversation, model=scripted_model_row)
    call(person, datetime(2026, 9, 6, tzinfo=UTC), cost=None, model_name='=HYPERLINK("x")')
    call(person, datetime(2026, 8, 6, tzinfo=UTC), cost="77")
    client = Client()
    client.force_login(person.user)
    page = client.get("/usage/?month=2026-09").content.decode()
    assert "September 2026" in page and "About bridges" in page and "$77" not in page
    assert "2,000 read, 1,200 of them cached, 100 written · $0.50, and 1 call without a price" in page
    assert client.get("/usage/?month=nonsense").status_code == client.get("/usage/").status_code == 200
    table = b"".join(client.get("/usage.csv?month=2026-09")).decode()
    columns = next(csv.reader(StringIO(table)))
    assert len(columns) == len(set(columns))
    rows = list(csv.DictReader(StringIO(table)))
    assert [row["cost"] for row in rows] == ["0.500000000000", ""] and rows[0]["person"] == person.username
    assert rows[1]["model_name"] == '\'=HYPERLINK("x")'


def test_the_page_of_a_project_says_what_all_its_members_have_used(person: Person, stranger: Person) -> None:
    project = Project.objects.create(owner=person.user, name="Bridge")
    call(person, project=project)
    call(stranger, project=project, cost="0.25")
    client = Client()
    client.force_login(person.user)
    page = client.get(f"/projects/{project.pk}/conversations/").content.decode()
    assert "Used in this project by everybody: 2,000 read" in page and "$0.75" in page


def test_administrators_see_every_call_its_sums_and_the_table(person: Person, stranger: Person) -> None:
    call(person, datetime(2026, 9, 5, tzinfo=UTC), model_name="one")
    call(stranger, datetime(2026, 9, 6, tzinfo=UTC), model_name="two", cost="0.25")
    admin = User.objects.create_superuser(uuid4().hex)
    client = Client()
    client.force_login(admin)
    query = f"first=2026-09-01&last=2026-09-30&person={person.username}&model="
    shown = client.get(f"/admin/chat/modelcall/sums/?{query}").content.decode()
    assert "1,000 read, 600 of them cached, 50 written · $0.50" in shown and "Here: one" in shown
    assert stranger.username not in shown
    table = b"".join(client.get(f"/admin/chat/modelcall/sums/?{query}&csv=1")).decode()
    assert [row["person"] for row in csv.DictReader(StringIO(table))] == [person.username]
    assert "Enter a valid date" in client.get("/admin/chat/modelcall/sums/?first=soon").content.decode()
    listed = client.get("/admin/chat/modelcall/").content.decode()
    assert person.username in listed and "1,000 / 600 / 50" in listed and "$0.25" in listed
    client.force_login(person.user)
    assert client.get(f"/admin/chat/modelcall/sums/?{query}").status_code == 302


def test_the_plan_says_what_sending_costs_at_most(person: Person, priced: Model) -> None:
    conversation = person.caller.post("conversations/", expect=201)["id"]
    plan = person.caller.post(f"conversations/{conversation}/plan/", {"text": "How much?"}, expect=200)
    prompt = plan["used"] + plan["tools_tokens"]
    assert Decimal(plan["cost"]["prompt"]) == Decimal(3 * prompt) / 10**6
    longest = plan["window"] - prompt
    assert Decimal(plan["cost"]["at_most"]) == Decimal(3 * prompt + 15 * longest) / 10**6
    client = Client()
    client.force_login(person.user)
    assert plan["cost"]["longest_answer"] == longest and Decimal(plan["cost"]["answer_per_1000"]) == Decimal("0.015")
    prompt_cost = dollars(Decimal(plan["cost"]["prompt"]))
    panel = client.post(f"/c/{conversation}/plan/?panel", {"text": "How much?"}).content.decode()
    assert f"{prompt_cost} + $0.015 per 1,000 tokens (some 700 words) of answer" in panel
    most = dollars(Decimal(plan["cost"]["at_most"]), up=True)
    assert f"At most {most}, with {longest:,} tokens of answer" in panel and "If the model calls tools" in panel


def test_what_a_plan_costs_is_counted_as_the_model_counts(person: Person, priced: Model) -> None:
    conversation = person.caller.post("conversations/", expect=201)["id"]
    learnt = {"token_ratio": 1.5, "ratio_samples": 5, "max_output": 1_000, "input_price": 3, "output_price": 15}
    model = Model.objects.create(provider=priced.provider, name=uuid4().hex, context_window=32_000, **learnt)
    body = {"text": "How much?", "model": str(model.pk)}
    plan = person.caller.post(f"conversations/{conversation}/plan/", body, expect=200)
    prompt = round((plan["used"] + plan["tools_tokens"]) * 1.5)
    assert Decimal(plan["cost"]["prompt"]) == Decimal(3 * prompt) / 10**6
    assert plan["cost"]["longest_answer"] == 1_000
    assert Decimal(plan["cost"]["at_most"]) == Decimal(3 * prompt + 15 * 1_000) / 10**6


def test_a_model_that_costs_nothing_is_said_to_in_one_word(person: Person, priced: Model) -> None:
    free = {"input_price": 0, "output_price": 0}
    model = Model.objects.create(provider=priced.provider, name=uuid4().hex, context_window=32_000, **free)
    client = Client()
    client.force_login(person.user)
    shown = client.post(f"/c/{person.caller.conversation()}/plan/?panel", {"text": "Hm?", "model": str(model.pk)})
    assert "$0.00." in shown.content.decode() and "per 1,000" not in shown.content.decode()


def test_without_a_price_the_plan_says_nothing_of_money(person: Person) -> None:
    conversation = person.caller.post("conversations/", expect=201)["id"]
    plan = person.caller.post(f"conversations/{conversation}/plan/", {"text": "How much?"}, expect=200)
    assert plan["cost"] is None


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("0", "$0.00"),
        ("0.0042", "$0.0042"),
        ("0.00000123", "$0.0000012"),
        ("0.128", "$0.13"),
        ("1234.5", "$1,234.50"),
    ],
)
def test_money_keeps_two_digits_that_say_something(amount: str, shown: str) -> None:
    with override("en"):
        assert dollars(Decimal(amount)) == shown


def test_administrators_programs_have_the_sums_of_everybody(person: Person, stranger: Person) -> None:
    def sums(by: str) -> dict[str | None, dict[str, Any]]:
        answer = client.get(f"/api/v1/usage/?by={by}&page_size=200").json()
        return {row["key"]: row for row in answer["results"]}

    client = Client()
    client.force_login(User.objects.create_superuser(uuid4().hex))
    group = PeopleGroup.objects.create(name=uuid4().hex)
    private = Persona.objects.create(owner=stranger.user, name="A secret")
    call(person, cache_written=9, reasoning=5)
    call(stranger, cost="0.25", group=group, persona=private, token_id=uuid4())
    assert sums("user")[str(person.user.pk)] == {
        "key": str(person.user.pk),
        "name": person.username,
        "calls": 1,
        "input": 1_000,
        "cached": 600,
        "cache_written": 9,
        "output": 50,
        "reasoning": 5,
        "seconds": 0,
        "money": "0.5",
        "unpriced": 0,
    }
    of_group, of_persona, key = sums("group"), sums("persona"), str(group.pk)
    assert (of_group[key]["name"], of_group[key]["money"]) == (group.name, "0.25")
    assert of_persona[str(private.pk)]["name"] is None and of_persona[None]["calls"] >= 1
    assert person.caller.get("usage/?by=user", expect=403)["code"] == "missing_scope"
    client.force_login(person.user)
    assert client.get("/api/v1/usage/").status_code == 403
    client.force_login(User.objects.create_superuser(uuid4().hex))
    group.delete()
    of_group = sums("group")
    assert (of_group[key]["name"], of_group[key]["money"]) == (None, "0.25")  # its id stays


def test_sums_are_a_table_for_spreadsheets_too(person: Person) -> None:
    call(person, datetime(2026, 9, 5, tzinfo=UTC))
    call(person, datetime(2026, 9, 6, tzinfo=UTC), cost=None)
    client = Client()
    client.force_login(person.user)
    answer = client.get("/api/v1/me/usage/?from=2026-09-01&to=2026-09-30&format=csv")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(StringIO(answer.content.decode())))
    assert [(row["key"], row["money"], row["unpriced"]) for row in rows] == [
        ("2026-09-06", "", "1"),
        ("2026-09-05", "0.5", "0"),
    ]
    assert client.get("/api/v1/me/usage/?by=x&format=csv").json()["code"] == "invalid"
