"""Parts that move in S and R, and parts that stay (docs/develop/context.md, “Order”)."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from chat.context.rendering import CallState, DateAwareness, NoteForm, ToolGuidance, reminder_text, system_text

SEARCH = ToolGuidance("search", "Use it for facts.", is_search=True)
CLOCK = ToolGuidance("clock", "Use it for the time.")
NOON = datetime(2026, 11, 21, 12, 5, tzinfo=UTC)
NEAR_END = CallState("near_end", NOON, tools=(SEARCH, CLOCK), available=frozenset({"search", "clock"}))
STABLE = replace(NEAR_END, layout="files_first")


def test_the_date_is_the_last_line() -> None:
    assert system_text("Be kind.", NEAR_END).splitlines()[-1] == "Today is Saturday, 2026-11-21."


@pytest.mark.parametrize(("awareness", "shown"), [("day", False), ("minute", True), ("off", False)])
def test_a_persona_chooses_how_much_of_the_time_is_told(awareness: DateAwareness, shown: bool) -> None:
    text = system_text("Be kind.", CallState("near_end", NOON, awareness))
    assert ("12:05" in text) == shown and ("2026" in text) == (awareness != "off")


def test_guidance_is_for_the_tools_of_this_cycle() -> None:
    text = system_text("Be kind.", replace(NEAR_END, available=frozenset({"clock"})))
    assert "clock: Use it for the time." in text and "search" not in text


def test_citations_are_explained_once_a_search_tool_has_run() -> None:
    assert "# Citations" not in system_text("Be kind.", NEAR_END)
    assert "# Citations" in system_text("Be kind.", replace(NEAR_END, searched=True))


@pytest.mark.parametrize("layout", ["files_first", "all_first"])
def test_in_the_other_layouts_the_system_prompt_is_the_same_in_every_call_of_a_day(layout: str) -> None:
    first = replace(STABLE, layout=layout, date_awareness="minute")
    later = replace(first, asked_at=NOON.replace(hour=18), available=frozenset(), searched=True)
    assert system_text("Be kind.", first) == system_text("Be kind.", later)
    assert "# Citations" in system_text("Be kind.", first) and "clock:" in system_text("Be kind.", first)
    assert "18:05" in str(reminder_text([], later))


def test_one_reminder_keeps_the_built_in_and_the_users_texts() -> None:
    text = reminder_text(["Answer in French.", "Be brief."], replace(NEAR_END, searched=True))
    assert text is not None and text.endswith("Answer in French.\n\nBe brief.") and "[1]" in text


def test_without_reminders_there_is_none() -> None:
    assert reminder_text([], NEAR_END) is None


def test_documents_in_the_prompt_bring_the_rules_of_citations_in_every_layout() -> None:
    for layout in ("near_end", "files_first", "all_first"):
        moment = CallState(layout, NOON, tools=(CLOCK,), available=frozenset({"clock"}))
        assert "# Citations" not in system_text("Be kind.", moment)
        assert "# Citations" in system_text("Be kind.", replace(moment, documents=True))


def test_documents_alone_are_reminded_of_where_the_profile_says_so() -> None:
    documents = replace(NEAR_END, documents=True)
    assert reminder_text([], documents) is None
    assert "[1]" in str(reminder_text([], replace(documents, always_remind=True)))


def test_a_web_search_is_followed_by_a_reminder_to_open_pages_while_one_can_be_opened() -> None:
    searched = replace(NEAR_END, searched=True, web_unopened=True)
    assert "open_url" not in str(reminder_text([], searched))
    assert "open_url" in str(reminder_text([], replace(searched, available=frozenset({"open_url"}))))


@pytest.mark.parametrize(
    ("form", "begins"),
    [("plain", "Be brief."), ("heading", "Reminder from the workspace"), ("tags", "<note>\nBe brief.")],
)
def test_a_reminder_is_told_from_the_persons_words_as_the_profile_says(form: NoteForm, begins: str) -> None:
    moment = replace(NEAR_END, note_form=form)
    assert str(reminder_text(["Be brief."], moment)).startswith(begins)
    assert ("# Notes" in system_text("Be kind.", moment)) == (form == "tags")
