"""Tasks in a prompt: their selection, and their text."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import User
from personas.texts import TEXTS
from projects.planner import services
from projects.planner.models import codes
from projects.planner.models.task import Task
from projects.planner.queries import PromptTasks, prompt_tasks, render, tasks_for_prompt, today
from projects.planner.rules import Actor, DraftItem, NewTask

TODAY = date(2026, 11, 21)


def entry(code: str, title: str = "Title", items: Sequence[Task] = (), **fields: object) -> Task:
    """A row that is not stored."""
    read = codes.parse(code)
    row = Task(code=code, title=title, level=read.level, horizon=read.horizon, date=read.start, **fields)
    row.checklist = list(items)
    return row


ALL = [
    entry("D2026-11-21-T01", position=1),
    entry("D2026-11-21-T02", position=0, archetype="hybrid", items=(entry("D2026-11-21-T02.C01"),)),
    entry("D2026-11-20-T01"),
    entry("D2026-11-22-T01"),
    entry("M2026-11-T01"),
    entry("M2026-11-O01"),
    entry("Y2026-O01"),
]


def shown(tasks: PromptTasks) -> tuple[list[str], list[str]]:
    return [each.code for each in tasks.today], [each.code for each in tasks.mentioned]


def test_without_a_mention_it_is_todays_tasks_in_the_users_order_and_nothing_else() -> None:
    assert shown(prompt_tasks(ALL, on=TODAY, mentioned=[])) == (["D2026-11-21-T02", "D2026-11-21-T01"], [])
    assert shown(prompt_tasks(ALL, on=date(2026, 11, 23), mentioned=[])) == ([], [])


def test_what_was_mentioned_comes_along_and_brings_nothing_else() -> None:
    mentioned = ["Y2026-O01", "D2026-11-20-T01.C07", "D2026-11-21-T01", "D2031-01-01-T01"]
    tasks = prompt_tasks(ALL, on=TODAY, mentioned=mentioned)
    assert shown(tasks) == (["D2026-11-21-T02", "D2026-11-21-T01"], ["D2026-11-20-T01", "Y2026-O01"])


@given(st.permutations(ALL), st.sets(st.sampled_from([each.code for each in ALL])))
def test_the_rule_holds_and_the_text_is_the_same_for_every_order_of_rows_and_mentions(
    rows: list[Task], mentioned: set[str]
) -> None:
    tasks = prompt_tasks(rows, on=TODAY, mentioned=mentioned)
    of_today = {each.code for each in ALL if each.code.startswith("D2026-11-21")}
    assert {each.code for each in tasks.today} == of_today
    assert {each.code for each in tasks.mentioned} == mentioned - of_today
    assert render(tasks) == render(prompt_tasks(ALL, on=TODAY, mentioned=sorted(mentioned, reverse=True)))


def test_the_text_says_state_kind_and_what_a_breakpoint_needs() -> None:
    items = (
        entry("D2026-11-21-T01.C02", "Book", status="waiting", breakpoint=True, needs="Which dates?", position=1),
        entry("D2026-11-21-T01.C01", "Find flights", status="done", position=0),
    )
    rows = [
        entry("D2026-11-21-T01", "Plan the trip", items, status="doing", archetype="hybrid", notes="With Ana."),
        entry("D2026-11-21-T02", "Gym", status="moved", archetype="user", position=1, notes="Legs"),
        entry("Y2026-O01", "Better English", notes="Read.\nWrite."),
    ]
    rows[1].moved_to = entry("D2026-11-22-T01")
    text = render(prompt_tasks(rows, on=TODAY, mentioned=["Y2026-O01", "D2026-11-21-T02"]))
    assert text == (
        f"{TEXTS['tasks'].built_in}\n"
        "Tasks of today, 2026-11-21:\n"
        "- D2026-11-21-T01 [doing] Plan the trip (hybrid task)\n"
        "  - .C01 [done] Find flights\n"
        "  - .C02 [waiting] Book (breakpoint, needs: Which dates?)\n"
        "- D2026-11-21-T02 [moved to D2026-11-22-T01] Gym (user task)\n"
        "    Legs\n"
        "Mentioned today:\n"
        "- Y2026-O01 [open] Better English (objective)\n"
        "    Read.\n"
        "    Write."
    )


def test_without_tasks_there_is_no_text() -> None:
    assert render(prompt_tasks([], on=TODAY, mentioned=["Y2026-O01"])) == ""


@pytest.fixture
def actor(db: None) -> Actor:
    return Actor(User.objects.create_user("wendy", timezone="Asia/Ho_Chi_Minh"))


def new(actor: Actor, title: str, **fields: object) -> Task:
    return services.create(actor=actor, new=NewTask(title, **{"date": TODAY, **fields}))  # type: ignore[arg-type]  # a test's shorthand


def test_the_rows_of_a_person_follow_the_rule(actor: Actor, django_assert_max_num_queries: object) -> None:
    done = services.set_status(actor=actor, task=new(actor, "Cacao"), status="done")
    plan = new(actor, "Plan", archetype="model")
    services.draft_checklist(actor=actor, task=plan, items=[DraftItem("Look"), DraftItem("Ask", True, "Which one?")])
    yesterday = new(actor, "Gym", date=TODAY - timedelta(days=1))
    goal = new(actor, "English", level="objective", horizon="year")
    new(actor, "Tomorrow", date=TODAY + timedelta(days=1))
    new(actor, "Book", horizon="month")
    new(Actor(User.objects.create_user("stranger")), "Not hers")
    with django_assert_max_num_queries(2):  # type: ignore[operator]  # pytest-django's fixture
        tasks = tasks_for_prompt(user=actor.user, on=TODAY, mentioned={goal.code, f"{yesterday.code}.C01"})
    assert shown(tasks) == ([done.code, plan.code], [yesterday.code, goal.code])
    assert [(item.title, item.needs) for item in tasks.today[1].checklist] == [("Look", ""), ("Ask", "Which one?")]


def test_the_text_changes_with_the_tasks_and_only_then(actor: Actor) -> None:
    task = new(actor, "Plan", archetype="hybrid")
    item = new(actor, "Ask", level="item", parent=task, breakpoint=True)

    def text() -> str:
        return render(tasks_for_prompt(user=actor.user, on=TODAY))

    first = text()
    assert text() == first
    services.update(actor=actor, task=task, fields={"notes": "Nobody mentioned it."})
    assert text() == first
    services.clear_breakpoint(actor=actor, task=item)
    assert text() == first.replace(" (breakpoint, needs: the user's word)", "") != first


def test_what_todays_tasks_mention_comes_along_and_what_that_mentions_does_not(
    actor: Actor, django_assert_max_num_queries: object
) -> None:
    goal = new(actor, "English", level="objective", horizon="year")
    further = new(actor, "Book", horizon="month")
    old = new(actor, f"Gym, for @{further.code}", date=TODAY - timedelta(days=1))
    task = new(actor, f"Go on with @{old.code}", notes="Nothing for @D2026-11-01-T09.")
    new(actor, f"A word for @{goal.code}", level="item", parent=task)
    new(actor, f"Of @{further.code}", date=TODAY + timedelta(days=1))
    with django_assert_max_num_queries(4):  # type: ignore[operator]  # pytest-django's fixture
        tasks = tasks_for_prompt(user=actor.user, on=TODAY)
    assert shown(tasks) == ([task.code], [old.code, goal.code])


def test_somebody_elses_code_that_was_mentioned_shows_nothing(actor: Actor) -> None:
    theirs = new(Actor(User.objects.create_user("stranger")), "Secret", level="objective", horizon="year")
    assert tasks_for_prompt(user=actor.user, on=TODAY, mentioned={theirs.code}) == PromptTasks(TODAY)


@pytest.mark.parametrize(
    ("moment", "auckland", "los_angeles"),
    [
        (datetime(2026, 11, 21, 23, 59, tzinfo=UTC), date(2026, 11, 22), date(2026, 11, 21)),
        (datetime(2026, 11, 22, 0, 1, tzinfo=UTC), date(2026, 11, 22), date(2026, 11, 21)),
        (datetime(2026, 11, 22, 7, 59, tzinfo=UTC), date(2026, 11, 22), date(2026, 11, 21)),
        (datetime(2026, 11, 22, 8, 0, tzinfo=UTC), date(2026, 11, 22), date(2026, 11, 22)),
        (datetime(2026, 11, 22, 11, 0, tzinfo=UTC), date(2026, 11, 23), date(2026, 11, 22)),
        (datetime(2026, 12, 31, 11, 0, tzinfo=UTC), date(2027, 1, 1), date(2026, 12, 31)),
    ],
)
def test_today_is_the_users_around_midnight(moment: datetime, auckland: date, los_angeles: date) -> None:
    assert today(User(timezone="Pacific/Auckland"), moment) == auckland
    assert today(User(timezone="America/Los_Angeles"), moment) == los_angeles


@pytest.mark.django_db
def test_a_task_without_a_date_gets_the_code_of_its_owners_day() -> None:
    """Kiritimati is 25 hours ahead of Pago Pago: it is never the same day in both."""
    dates = []
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
        user = User.objects.create_user(zone, timezone=zone)
        before = datetime.now(ZoneInfo(zone)).date()
        task = services.create(actor=Actor(user), new=NewTask("Here"))
        assert before <= task.date <= datetime.now(ZoneInfo(zone)).date()
        assert codes.parse(task.code).start == task.date
        assert [each.code for each in tasks_for_prompt(user=user, on=today(user)).today] == [task.code]
        month = services.create(actor=Actor(user), new=NewTask("This month", horizon="month"))
        assert month.code == f"M{today(user).isoformat()[:7]}-T01"
        dates.append(task.date)
    assert dates[0] > dates[1]
