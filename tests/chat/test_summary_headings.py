"""Lines of a written summary that begin its sections."""

import pytest

from chat.summaries.headings import has_heading, parse_sections

NAMES = ("Earlier", "This month", "Today", "Now")
BODIES = ("They met in Conwy.", "The plan was made.", "Two files were read.", "The third is being read.")


def written(*headings: str) -> str:
    return "\n".join(f"{heading}\n{body}" for heading, body in zip(headings, BODIES, strict=True))


@pytest.mark.parametrize(
    "form",
    [
        *("## {}", "# {}:", "**{}**", "**{}:**", "{}:", "{}", "[{}]", "### 📅 {}", "- **{}**", "## {} (Hôm nay)"),
        *(
            "1. **{}**:",
            "## 1. {}",
            "1. {}",
            "1) {}:",
            "* {}:",
            "• {}",
            "__{}__",
            "***{}***",
            "> ## {}",
            "📅 {}",
            "   ## {}  ",
        ),
        *("## **{}**", "**1. {}**", "## {} –", "#### {} ####", "{}：", "### _{}_", "- [{}]"),
    ],
)
def test_a_heading_is_known_by_its_name_whatever_decorates_it(form: str) -> None:
    sections = parse_sections(written(*(form.format(name) for name in NAMES)), NAMES)
    assert [each["name"] for each in sections] == list(NAMES)
    assert [each["text"].splitlines()[-1] for each in sections] == list(BODIES)
    upper = parse_sections(written(*(form.format(name.upper()) for name in NAMES)), NAMES)
    assert [each["name"] for each in upper] == list(NAMES)


TRANSLATED = ("Trước đây", "Tháng này", "Hôm nay", "Bây giờ")


@pytest.mark.parametrize("form", ["## {}", "### 1. {}", "**{}**", "**{}:**", "1. **{}**", "{}:", "1. {}", "## 🕑 {}"])
def test_headings_as_many_as_were_asked_for_are_the_sections_in_their_order(form: str) -> None:
    text = "# Tóm tắt\n\n" + written(*(form.format(name) for name in TRANSLATED))
    assert parse_sections(text, NAMES) == [
        {"name": name, "text": body} for name, body in zip(NAMES, BODIES, strict=True)
    ]


def test_some_of_the_headings_may_be_translated() -> None:
    sections = parse_sections(written("## Trước đây", "## Tháng này", "## Today", "## Now"), NAMES)
    assert [(each["name"], each["text"]) for each in sections] == list(zip(NAMES, BODIES, strict=True))


def test_named_headings_in_another_order_keep_their_names() -> None:
    sections = parse_sections(written("## Now", "## Today", "## This month", "## Earlier"), NAMES)
    assert [(each["name"], each["text"]) for each in sections] == list(zip(NAMES, reversed(BODIES), strict=True))


def test_sections_that_were_not_asked_for_are_not_counted() -> None:
    text = "## Hôm nay\nTwo files were read.\n## Bây giờ\nThe third is being read."
    assert [each["name"] for each in parse_sections(text, ("Today", "Now"))] == ["Today", "Now"]
    assert parse_sections(text, NAMES) == []


def test_what_follows_a_name_in_its_line_is_text_of_the_section() -> None:
    assert parse_sections("[Today: they met.]\nNow: they part.", NAMES) == [
        {"name": "Today", "text": "they met."},
        {"name": "Now", "text": "they part."},
    ]
    assert parse_sections("**Today:** they met.", NAMES) == [{"name": "Today", "text": "they met."}]


@pytest.mark.parametrize(
    "text",
    [
        "Now we know that the port is closed.\nToday they met, and that was all.",
        "Earlier plans were dropped.\n- Today the rest was decided.",
        "## Facts\nOne.\n## Wishes\nTwo.",
        "Nowadays: nothing.",
        "",
    ],
)
def test_a_sentence_that_begins_with_the_word_is_no_heading(text: str) -> None:
    assert parse_sections(text, NAMES) == []
    assert not has_heading(text)


def test_text_before_the_first_heading_belongs_to_no_section() -> None:
    assert parse_sections("Here is the summary:\n\n## Today\nThey met.", NAMES) == [
        {"name": "Today", "text": "They met."}
    ]
