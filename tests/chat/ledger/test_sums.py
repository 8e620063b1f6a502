"""Sums of past days: computed once, and equal to those of the calls."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from django.db.models import Count, Max
from django.db.models.functions import TruncDate
from django.test import override_settings
from django.utils import timezone

from accounts.models import PeopleGroup, User
from chat.background.tasks import sum_usage
from chat.ledger.models import ModelCall, PersonSum, UsageDay, UsageSum
from chat.ledger.services import CALL_AGGREGATES, UsageFigures, midnight
from chat.ledger.sums import KINDS, SETTLING_TIME, UsageReport
from chat.models import Conversation
from llm.models import Model, Provider
from personas.models import Persona
from projects.models import Project

pytestmark = pytest.mark.django_db
SHOWN = 30  # days


@pytest.fixture(autouse=True)
def nobody_has_asked_before() -> None:
    """Remove the calls of other tests, so that they are not in these figures."""
    ModelCall.objects.all().delete()
    UsageDay.objects.all().delete()


@pytest.fixture
def people() -> list[User]:
    return [User.objects.create_user(uuid4().hex) for _ in range(3)]


@pytest.fixture
def models() -> list[Model]:
    provider = Provider.objects.create(name=uuid4().hex)
    return [Model.objects.create(provider=provider, name=name) for name in ("small", "large")]


def called(person: User, model: Model, at: datetime, **fields: Any) -> None:
    values = {"model": model, "model_name": model.name, "provider_name": model.provider.name, "input": 7, "output": 3}
    row = ModelCall.objects.create(person=person, **({"purpose": "answer"} | values | fields))
    ModelCall.objects.filter(pk=row.pk).update(created=at)


@pytest.fixture
def used(people: list[User], models: list[Model]) -> list[Model]:
    """Calls of forty days, of all kinds, today's among them; one day is without."""
    persona = Persona.objects.create(owner=people[0], name="x")
    project = Project.objects.create(owner=people[0], name="Bridge")
    place = Conversation.objects.create(owner=people[0])
    group, token = PeopleGroup.objects.create(name=uuid4().hex), uuid4()
    now, purposes = timezone.now(), ModelCall.Purpose.values
    for number in range(120):
        at = now - timedelta(days=number // 3, minutes=number * 7)
        called(
            people[number % 3 if number % 5 else 0],
            models[number % 2],
            at,
            cost=Decimal(number) / 1_000_000 if number % 2 else None,
            persona=persona if number % 3 else None,
            project=project if number % 4 else None,
            conversation=place if number % 7 else None,
            group=group if number % 6 else None,
            token_id=token if number % 8 == 0 else None,
            number=1 + number % 4 // 3,
            purpose=purposes[number % len(purposes)],
            input=70 + number,
            cached_input=number % 50,
            cache_written=number % 20,
            output=30 + number,
            reasoning=number % 30,
        )
    ModelCall.objects.filter(created__date=(now - timedelta(days=9)).date()).delete()
    return models


def from_calls(*names: str, **only: Any) -> dict[Any, UsageFigures]:
    """Return the expected result of `UsageReport.by`, computed from the calls alone."""
    zone = timezone.get_default_timezone()
    rows = ModelCall.objects.filter(created__gte=midnight(first_day(), zone), **only).order_by()
    rows = rows.annotate(day_id=TruncDate("created", tzinfo=zone))
    figures = {}
    for row in rows.values(*names).annotate(**CALL_AGGREGATES):
        key = tuple(row.pop(name) for name in names)
        figures[key if len(key) > 1 else key[0]] = UsageFigures(**row)
    return figures


def first_day() -> Any:
    return timezone.localdate(timezone=timezone.get_default_timezone()) - timedelta(days=SHOWN - 1)


def used_since(**only: Any) -> UsageReport:
    return UsageReport(first_day(), None, timezone.get_default_timezone(), only)


def last_day() -> Any:
    return UsageDay.objects.aggregate(last=Max("day"))["last"]


BY = list(KINDS.values())


@pytest.mark.parametrize("summed", [False, True])
def test_figures_are_those_of_the_calls_before_and_after_days_are_summed(used: list[Model], summed: bool) -> None:
    if summed:
        sum_usage()
        assert UsageDay.objects.count() >= 38  # not today, and for an hour yesterday neither
    before = {names: used_since().by(*names) for names in BY}
    assert before == {names: from_calls(*names) for names in BY}
    assert len(before["day_id",]) >= SHOWN - 2
    total = used_since().total()
    for kind in KINDS:
        assert sum((line.figures for line in used_since().lines(kind)), UsageFigures()) == total
    assert len(before["person_id",]) == 3
    zone = timezone.get_default_timezone()
    calls = ModelCall.objects.filter(created__gte=midnight(first_day(), zone)).order_by()
    counted = calls.values_list(TruncDate("created", tzinfo=zone)).annotate(Count("person", distinct=True))
    assert {day: people for day, people in used_since().people().items() if people} == dict(counted)


@pytest.mark.parametrize("summed", [False, True])
def test_of_one_person_and_of_one_model_figures_are_those_of_their_calls(
    used: list[Model], people: list[User], summed: bool
) -> None:
    if summed:
        sum_usage()
    of_person, of_model = {"person__username": people[0].username}, {"model_name": "small"}
    for only in (of_person, of_model, of_person | of_model, {"person_id": uuid4()}, {"persona_id": None}):
        usage = used_since(**only)
        assert {names: usage.by(*names) for names in BY} == {names: from_calls(*names, **only) for names in BY}
        assert usage.total() == sum(from_calls("day_id", **only).values(), UsageFigures())


def test_what_sums_know_of_one_person_and_of_one_model_is_asked_of_them(used: list[Model], people: list[User]) -> None:
    sum_usage()
    of_person, of_model = {"person_id": people[0].pk}, {"model_name": "small"}
    expected = {kind: from_calls(*KINDS[kind], **of_model) for kind in ("day", "model", "persona", "purpose")}
    days = from_calls("day_id", **of_person)
    ModelCall.objects.filter(created__lt=midnight(last_day(), timezone.get_default_timezone())).delete()
    assert {kind: used_since(**of_model).by(*KINDS[kind]) for kind in expected} == expected
    assert used_since(**of_person).by("day_id") == days


def test_what_is_summed_stays_when_its_model_its_persona_or_its_people_go(
    used: list[Model], people: list[User]
) -> None:
    sum_usage()
    days = used_since().by("day_id")
    seen = used_since().people()
    Persona.objects.filter(owner=people[0]).delete()
    used[0].delete()
    for person in people:
        person.delete()
    assert used_since().by("day_id") == days
    assert {names: used_since().by(*names) for names in BY} == {names: from_calls(*names) for names in BY}
    assert used_since().by("person_id") == from_calls("person_id")
    assert used_since().by("person_id").keys() == {None}
    assert {name for _pk, _provider, name in used_since().by(*BY[1])} == {"small", "large"}
    assert used_since().people().items() >= {day: count for day, count in seen.items() if day <= last_day()}.items()


def test_a_day_is_summed_once_and_only_when_it_is_over(people: list[User], models: list[Model]) -> None:
    zone = timezone.get_default_timezone()
    called(people[0], models[0], timezone.now() - SETTLING_TIME - timedelta(days=2))
    called(people[0], models[0], timezone.now())
    sum_usage()
    rows = dict(UsageSum.objects.values_list("pk", "calls"))
    assert list(rows.values()) == [1]
    last = last_day()
    assert midnight(last + timedelta(days=1), zone) + SETTLING_TIME <= timezone.now()
    sum_usage()
    assert dict(UsageSum.objects.values_list("pk", "calls")) == rows
    assert used_since().by("day_id").keys() == from_calls("day_id").keys()


def test_without_calls_there_is_nothing_to_sum() -> None:
    sum_usage()
    assert not UsageDay.objects.exists()
    assert used_since().by("day_id") == {}


@pytest.fixture
def other_zone() -> Iterator[ZoneInfo]:
    with override_settings(TIME_ZONE="Pacific/Kiritimati"):  # 14 hours before UTC
        yield ZoneInfo("Pacific/Kiritimati")


def test_another_time_zone_has_other_days(people: list[User], models: list[Model], other_zone: ZoneInfo) -> None:
    at = datetime.now(UTC).replace(hour=12) - timedelta(days=4)
    called(people[0], models[0], at)
    UsageDay.objects.create(day=at.date(), zone="UTC", people=1, by_person=True, whole=True)
    UsageSum.objects.create(day_id=at.date(), calls=5, answers=5, input=1, output=1)
    assert used_since().by("day_id") == from_calls("day_id")  # a sum of other days says nothing of these
    sum_usage()
    assert not UsageDay.objects.filter(zone="UTC").exists()
    assert UsageSum.objects.get().day_id == timezone.localdate(at, other_zone)
    assert used_since().by("day_id") == from_calls("day_id")


def test_a_day_of_which_nobodys_own_sums_were_kept_is_summed_anew(people: list[User], models: list[Model]) -> None:
    called(people[0], models[0], timezone.now() - timedelta(days=3))
    sum_usage()
    UsageDay.objects.update(whole=False)  # as the version before leaves it
    PersonSum.objects.all().delete()
    assert used_since().by("day_id") == from_calls("day_id")
    assert used_since().by("person_id") == from_calls("person_id")
    sum_usage()
    assert PersonSum.objects.get().person == people[0]
    assert used_since().by("person_id") == from_calls("person_id")


def test_ids_of_models_lead_to_them(people: list[User], models: list[Model]) -> None:
    called(people[0], models[0], timezone.now() - timedelta(days=3))
    sum_usage()
    (key,) = used_since().by(*BY[1])
    assert key == (UUID(str(models[0].pk)), models[0].provider.name, "small")
