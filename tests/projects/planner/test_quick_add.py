"""A task written in one line: the meaning of its marks. No word of it is lost."""

from datetime import date, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core.errors import ProductError
from projects.planner.quick_add import ARCHETYPES, WEEKDAYS, Period, QuickTask, parse, parse_items
from projects.planner.rules import DraftItem

TODAY = date(2026, 11, 21)  # a Saturday
ON = Period("day", TODAY)
MARKS = "!#>^"

plain_word = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
plain_words = st.lists(plain_word, min_size=1, max_size=5)
days = st.dates(date(1, 1, 1), date(9999, 12, 31))


def read(text: str, on: Period = ON) -> QuickTask:
    return parse(text, on=on, today=TODAY)


def refused(text: str) -> ProductError:
    with pytest.raises(ProductError) as caught:
        read(text)
    return caught.value


def test_everything_can_be_said_in_one_line() -> None:
    task = read('Buy cacao !model #"Chocolate shop" >2026-11-23 ^m2026-11-t03; which kind !stop ask Lan; pay')
    assert task == QuickTask(
        title="Buy cacao",
        period=Period("day", date(2026, 11, 23)),
        archetype="model",
        project="Chocolate shop",
        parent="M2026-11-T03",
        items=[DraftItem("which kind", True, "ask Lan"), DraftItem("pay")],
    )


def test_a_checklist_may_stand_in_lines_of_its_own() -> None:
    task = read("Pack\r\n- tent\n\n* stove; gas\n  bread  \n")
    assert task.title == "Pack"
    assert [item.title for item in task.items] == ["tent", "stove", "gas", "bread"]


@pytest.mark.parametrize(
    ("word", "period"),
    [
        ("today", ON),
        ("tomorrow", Period("day", date(2026, 11, 22))),
        ("Sunday", Period("day", date(2026, 11, 22))),
        ("sat", Period("day", date(2026, 11, 28))),
        ("2026-12", Period("month", date(2026, 12, 1))),
        ("2027", Period("year", date(2027, 1, 1))),
    ],
)
def test_days_months_and_years_are_understood(word: str, period: Period) -> None:
    assert read(f"Go >{word} home").period == period


def test_what_is_of_a_year_is_an_objective() -> None:
    assert read("Learn to swim >2026").level == "objective"
    assert read("Learn to swim", Period("year", date(2026, 1, 1))).level == "objective"
    assert read("Swim a mile !objective !user >2026-11").level == "objective"
    assert read("Swim a mile >2026-11").level == "task"


@pytest.mark.parametrize(
    "text", ["5 > 3", "Wow !!", "issue #12", "C# and a!b", "x ^ y", "(> soon)", "a;b", "-5 degrees", "5 - 3", "^_^"]
)
def test_signs_that_are_no_marks_stay(text: str) -> None:
    task = read(text)
    assert (task.title, task.items) == (text, [])


def test_a_backslash_keeps_a_mark_as_text() -> None:
    task = read(r"Praise \#Contracts \!model \>tomorrow and \^M2026-11-T03\; done C:\temp")
    assert task == QuickTask(title=r"Praise #Contracts !model >tomorrow and ^M2026-11-T03; done C:\temp", period=ON)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Go !modle", "!modle"),
        ("Go >2026-13", ">2026-13"),
        ("Go >2026-02-30", ">2026-02-30"),
        ("Go >2026-W01", ">2026-W01"),
        ("Go ^M2026-11-T00", "^M2026-11-T00"),
        ('Go #""', "#"),
    ],
)
def test_a_mark_that_means_nothing_is_named_with_the_way_out(text: str, names: str) -> None:
    error = refused(text)
    assert error.code == "unknown_mark"
    assert names in error.detail and "\\" in error.detail


@pytest.mark.parametrize("text", ["a !model !user", "a >today >tomorrow", "a #x #y", "a ^Y2026-O01 ^Y2026-O02"])
def test_two_marks_that_contradict_are_refused(text: str) -> None:
    assert refused(text).code == "mark_twice"


def test_an_item_without_a_title_is_named() -> None:
    error = refused("Pack; boxes; !stop send to Lan")
    assert error.code == "empty_title" and "“!stop send to Lan”" in error.detail


@given(plain_words, st.permutations([0, 1, 2, 3]), st.sampled_from(ARCHETYPES), plain_word, days, st.data())
def test_marks_stand_anywhere_in_any_order(
    words: list[str], order: list[int], archetype: str, project: str, day: date, data: st.DataObject
) -> None:
    assume(not project.isdecimal() and not all(each.isdigit() for each in project))
    marks = [f"!{archetype}", f"#{project}", f">{day.isoformat()}", "^M2026-11-T03"]
    line = list(words)
    for number in order:
        line.insert(data.draw(st.integers(0, len(line))), marks[number])
    assert read(" ".join(line)) == QuickTask(
        " ".join(words), Period("day", day), archetype=archetype, project=project, parent="M2026-11-T03"
    )


@given(st.text(max_size=60))
def test_any_text_is_understood_or_refused_with_a_sentence(text: str) -> None:
    try:
        task = read(text)
    except ProductError as error:
        assert error.code in ("unknown_mark", "mark_twice", "empty_title")
        assert error.detail
    else:
        assert task.title == " ".join(task.title.split())


@given(st.lists(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=6), max_size=8))
def test_no_word_is_lost(words: list[str]) -> None:
    assume(not any(word[0] in MARKS or "\\" in word or ";" in word for word in words))
    text = " ".join(words)
    bullet = words[:1] and words[0] in ("-", "*", "•")
    assert read(text).title == (" ".join(words[1:]) if bullet else text)


@given(st.lists(plain_words, max_size=6), st.sampled_from(["\n", "; ", "\n- ", ";\n"]))
def test_a_checklist_keeps_its_items_and_their_order(items: list[list[str]], between: str) -> None:
    titles = [" ".join(words) for words in items]
    assert [item.title for item in parse_items(between.join(titles))] == titles
    assert [item.title for item in read("Task" + between + between.join(titles)).items] == titles


@given(plain_words, plain_words)
def test_stop_makes_a_breakpoint_with_what_it_needs(before: list[str], after: list[str]) -> None:
    title, needs = " ".join(before), " ".join(after)
    assert parse_items(f"{title} !stop {needs}") == [DraftItem(title, True, needs)]
    assert parse_items(f"{title} !STOP") == [DraftItem(title, True)]
    assert parse_items(f"{title}!stop {needs}") == [DraftItem(f"{title}!stop {needs}")]


@given(st.sampled_from(WEEKDAYS), days.filter(lambda day: day < date(9999, 12, 1)))
def test_a_weekday_is_the_next_one_within_a_week(name: str, today: date) -> None:
    day = parse(f"Go >{name}", on=ON, today=today).period.start
    assert WEEKDAYS[day.weekday()] == name
    assert timedelta(1) <= day - today <= timedelta(7)
