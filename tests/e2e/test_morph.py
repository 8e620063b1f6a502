"""A person's unfinished work stays while `morph` of live.js replaces old HTML by new, element by element."""

from typing import Any

import pytest
from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.product]

TEXT = '<input name="title" value="Old"><textarea name="note">Old</textarea>'
ROWS = "".join(f'<li id="row-{name}"><details><summary>{name}</summary></details></li>' for name in "abc")


class Place:
    """A part of a page. Each step is a function of the part."""

    def __init__(self, page: Page, html: str) -> None:
        self._page = page
        page.evaluate(
            """async (html) => {
              const module = document.querySelector("link[rel=modulepreload][href*='/live.']").href;
              window.tried = { morph: (await import(module)).morph, place: document.createElement("div") };
              tried.place.innerHTML = html;
              document.body.append(tried.place);
            }""",
            html,
        )

    def do(self, function: str) -> Any:
        return self._page.evaluate(f"({function})(tried.place)")

    def morph(self, html: str, sender: str = "") -> int:
        """Returns how many nodes are new."""
        return int(
            self._page.evaluate(
                """([html, sender]) => {
                  const content = document.createRange().createContextualFragment(html);
                  return tried.morph(tried.place, content, sender ? tried.place.querySelector(sender) : null).length;
                }""",
                [html, sender],
            )
        )


def test_what_is_written_stays_with_its_selection_and_what_is_not_follows(page: Page) -> None:
    place = Place(page, TEXT)
    for field in ("input", "textarea"):
        place.do(f"""(place) => {{
          const field = place.querySelector("{field}");
          field.focus();
          field.value = "Written here";
          field.setSelectionRange(2, 5);
        }}""")
        place.morph(TEXT.replace("Old", "New"))
        assert place.do(f"""(place) => {{
          const field = place.querySelector("{field}");
          const {{ value, defaultValue, selectionStart, selectionEnd }} = field;
          return [document.activeElement === field, value, defaultValue, selectionStart, selectionEnd];
        }}""") == [True, "Written here", "New", 2, 5]
        place.do(f'(place) => (place.querySelector("{field}").value = "New")')
        place.morph(TEXT.replace("Old", "Newer").replace(' value="Newer"', ""))
        assert place.do(f'(place) => place.querySelector("{field}").value') == ("" if field == "input" else "Newer")
        place.morph(TEXT)


def test_a_written_field_that_the_server_has_empty_stays(page: Page) -> None:
    place = Place(page, '<input name="title" value="Old">')
    place.do('(place) => (place.firstChild.value = "Written")')
    place.morph('<input name="title">')
    assert place.do("(place) => [place.firstChild.value, place.firstChild.defaultValue]") == ["Written", ""]


def test_a_choice_stays_and_one_that_nobody_made_follows(page: Page) -> None:
    def options(*names: str, default: str) -> str:
        rows = "".join(f"<option{' selected' if name == default else ''}>{name}</option>" for name in names)
        return f"<select>{rows}</select>"

    read = "(place) => [place.firstChild.value, ...[...place.firstChild.options].filter((each) => each.defaultSelected)"
    read += ".map((each) => each.value)]"
    place = Place(page, options("a", "b", "c", default="a"))
    place.morph(options("a", "b", "c", default="b"))
    assert place.do(read) == ["b", "b"]
    place.do('(place) => (place.firstChild.value = "c")')
    place.morph(options("d", "a", "b", "c", default="a"))
    assert place.do(read) == ["c", "a"]
    place.morph(options("c", "d", default="d"))
    assert place.do(read) == ["c", "d"]


def test_a_tick_stays_and_one_that_nobody_made_follows(page: Page) -> None:
    place = Place(page, '<input type="checkbox" id="mine"><input type="checkbox" id="theirs">')
    place.do('(place) => (place.querySelector("#mine").checked = true)')
    place.morph('<input type="checkbox" id="mine"><input type="checkbox" id="theirs" checked>')
    read = (
        "(place) => [...place.children].map(({ checked, defaultChecked, value }) => [checked, defaultChecked, value])"
    )
    assert place.do(read) == [[True, False, "on"], [True, True, "on"]]


def test_rows_are_ordered_anew_and_stay_the_elements_they_are(page: Page) -> None:
    place = Place(page, f"<ul>{ROWS}</ul><section></section>")
    place.do("""(place) => {
      for (const row of place.querySelectorAll("li")) row.before = row.id;
      place.querySelector("#row-b details").open = true;
      place.querySelector("#row-b summary").focus();
    }""")
    a, b, c = ROWS.partition("</li>")[0] + "</li>", *(f"{each}</li>" for each in ROWS.split("</li>")[1:3])
    new = a.replace("row-a", "row-new")
    assert place.morph(f"<ul>{c}{new}{b}</ul><section><ol>{a}</ol></section>") == 2
    assert place.do("""(place) => [
      [...place.querySelectorAll("li")].map((row) => [row.id, row.before ?? null]),
      place.querySelector("#row-b details").open,
      document.activeElement === place.querySelector("#row-b summary"),
    ]""") == [
        [["row-c", "row-c"], ["row-new", None], ["row-b", "row-b"], ["row-a", "row-a"]],
        True,
        True,
    ]


def test_a_row_without_an_id_is_not_taken_for_another(page: Page) -> None:
    rows = [f'<li><details><summary id="of-{name}">{name}</summary></details></li>' for name in "ab"]
    place = Place(page, f"<ul>{''.join(rows)}</ul>")
    place.do('(place) => (place.querySelector("details").open = true)')
    place.morph(f"<ul>{rows[1]}{rows[0].replace('of-a', 'of-c')}</ul>")
    assert place.do('(place) => [...place.querySelectorAll("details")].map((each) => each.open)') == [False, False]
    assert place.do('(place) => [...place.querySelectorAll("[id]")].map((each) => each.id)') == ["of-b", "of-c"]


def test_what_was_opened_to_be_worked_in_keeps_its_place_until_it_is_sent(page: Page) -> None:
    first, last = '<li id="first">1</li>', '<li id="last">3</li>'
    editing = '<li><form data-editing id="edit"><input name="title" value="2"></form></li>'
    place = Place(page, first + editing + last)
    place.morph(f"{first}<li id='between'>2</li>{last}")
    read = "(place) => [...place.children].map((each) => each.id || each.firstElementChild.id)"
    assert "edit" in place.do(read)[1:3]
    place.morph(first + last, sender="#edit input")
    assert place.do(read) == ["first", "last"]


def test_what_refreshes_itself_is_left_alone(page: Page) -> None:
    place = Place(page, '<p>Old</p><div data-apart="">Drawn here</div>')
    place.morph("<p>New</p><div>From the server</div>")
    assert place.do("(place) => place.textContent") == "NewDrawn here"


def test_a_button_stays_shut_until_what_it_sent_is_answered(page: Page) -> None:
    place = Place(page, "<button disabled data-disabled-by-htmx>Send</button>")
    place.morph('<button class="new">Send</button>')
    assert place.do("(place) => [place.firstChild.disabled, place.firstChild.className]") == [True, "new"]
