"""The sentence that a citation leads to: in the card, in the panel, and on the page of the file."""

import re
from html import unescape
from uuid import UUID

import pytest
from django.test import Client

from chat.citations.claims import claims
from chat.citations.places import TextPassage, best_place, place_in
from chat.models import Conversation
from chat.rendering.references import Source
from files.models import FileText
from llm.models import Model
from readers.tests.samples import pdf
from tests.chat.citing import ask
from tests.chat.documents import upload
from tests.conftest import Person
from tests.product import until

HARBOUR = (
    "The harbour of Kalm was dredged in 1987. The work cost 4.2 million crowns. Ships of up to 9 metres draught can "
    "enter it since then. The ferry to Soren was not interrupted by the work."
)
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday"


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The work cost 4.2 million crowns.", "The work cost 4.2 million crowns."),
        ("The cost of the work was 4,200,000 crowns.", "The work cost 4.2 million crowns."),
        (
            "The harbour of Kalm was dredged in 1987 at a cost of 4.2 million crowns.",
            "The harbour of Kalm was dredged in 1987. The work cost 4.2 million crowns.",
        ),
        ("The orchestra plays a symphony tonight.", None),
        ("See.", None),
    ],
)
def test_the_sentence_that_carries_another_is_its_place(sentence: str, expected: str | None) -> None:
    place = place_in(sentence, HARBOUR)
    assert (HARBOUR[place.start : place.end] if place is not None else None) == expected


def test_of_several_passages_the_one_that_carries_the_sentence_counts() -> None:
    passages = [TextPassage(0, "The work on the harbour began."), TextPassage(500, HARBOUR), TextPassage(900, "Ships.")]
    best = best_place("Ships of up to 9 metres draught can enter the harbour.", passages)
    assert best is not None
    passage, place = best
    assert passage.start == 500
    assert HARBOUR[place.start - 500 : place.end - 500] == "Ships of up to 9 metres draught can enter it since then."


def test_a_citation_in_a_table_stands_for_its_row() -> None:
    sources = {number: Source(number, "x", "/x") for number in (1, 2)}
    text = (
        "| Clause | Subject | Period | |\n| --- | --- | --- | --- |\n| 7.2 | Notice | 60 days | [1] |\n"
        "| 9.1 | Liability [1] | 2 years [2] | |\n"
    )
    assert [(claim.citation, claim.numbers, claim.sentence) for claim in claims(text, sources)] == [
        (0, (1,), "7.2 | Notice | 60 days"),
        (1, (1,), "9.1 | Liability"),
        (2, (2,), "9.1 | 2 years"),
    ]


def page_of(day: str) -> str:
    """Return a page of a report about a day, long enough that passages begin on one page and end on another."""
    lines = [
        f"On {day} crane {number} lifted {number * 7} containers from the ship at berth {number}."
        for number in range(1, 9)
    ]
    return "\n".join([*lines, f"The harbour master on {day} was called {day}son."])


@pytest.fixture
def report(person: Person) -> tuple[str, str]:
    """Return the id of a report of five pages, and a conversation that can search it."""
    file = upload(person, "report.pdf", pdf([page_of(day) for day in WEEKDAYS.split()]))
    until(lambda: person.caller.get(f"files/{file['id']}/")["searchable"], "the file can be searched")
    project = person.caller.post("projects/", {"name": "Harbour"}, expect=201)
    person.caller.post(f"projects/{project['id']}/files/", {"file": file["id"]}, expect=201)
    return file["id"], str(person.caller.post("conversations/", {"project": project["id"]}, expect=201)["id"])


@pytest.fixture
def client(person: Person) -> Client:
    browser = Client()
    browser.force_login(person.user)
    return browser


SEARCH = {
    "tool_calls": [
        {"name": "search_files", "arguments": {"query": "harbour master", "variants": [*WEEKDAYS.split(), "crane 5"]}}
    ]
}


def test_a_citation_leads_to_its_sentence_on_its_page(
    person: Person, client: Client, report: tuple[str, str], caller_of_tools: Model
) -> None:
    file, place = report
    text = "On Thursday crane 5 lifted 35 containers [1]. On Tuesday the harbour master was called Tuesdayson [1]."
    turn = ask(person, place, caller_of_tools, "Who?", SEARCH, {"text": text})
    part = turn["parts"][-1]
    whole = FileText.objects.get(file=UUID(file)).text
    assert [(each["citation"], each["number"], each["page"]) for each in part["places"]] == [(0, 1, 4), (1, 1, 2)]
    sentences = [whole[each["sentence_start"] : each["sentence_end"]] for each in part["places"]]
    assert sentences[0].startswith("On Thursday crane 5 lifted 35 containers")
    assert sentences[1] == "The harbour master on Tuesday was called Tuesdayson."
    assert part["check"]["doubts"] == []

    conversation = client.get(f"/c/{place}/").content.decode()
    links = [unescape(link) for link in re.findall(r'<a href="([^"]*)"[^>]*class="citation"', conversation)]
    assert len(links) == 2 and all(link.endswith("#passage") for link in links)
    shown = client.get(links[1].partition("#")[0]).content.decode()
    assert f'<mark id="passage" tabindex="-1">{sentences[1]}</mark>' in shown and 'class="around"' in shown

    answer = Conversation.objects.get(pk=place).leaf_id
    at = len(turn["parts"]) - 1
    for citation, number in ((0, 4), (1, 2)):
        for path in (f"/messages/{answer}/sources/1/", f"/messages/{answer}/sources/"):
            card = client.get(f"{path}?citation={at}.{citation}", headers={"HX-Request": "true"}).content.decode()
            assert f"<mark>{sentences[citation]}</mark>" in card and f"page {number}" in card


def test_a_page_marks_a_sentence_strongly_and_its_passage_faintly(client: Client, report: tuple[str, str]) -> None:
    file, _ = report
    shown = client.get(f"/files/{file}/?start=0&end=40&from=3&to=9").content.decode()
    text = FileText.objects.get(file=UUID(file)).text
    assert f'<mark class="around">{text[:2]}</mark> <mark id="passage" tabindex="-1">{text[3:9]}</mark>' in shown
    outside = client.get(f"/files/{file}/?start=0&end=40&from=30&to=90").content.decode()
    assert 'class="around"' not in outside  # no sentence of the passage
    lost = client.get(f"/files/{file}/?start=0&end=40&from=3&to=9&page=2").content.decode()
    assert "The passage was not found" in lost


def test_a_row_of_a_table_is_compared_and_leads_to_its_row(
    person: Person, client: Client, caller_of_tools: Model
) -> None:
    rows = [f"{month},{orders},{country}" for month, orders, country in
            (("January", 310, "Chile"), ("February", 287, "Peru"), ("March", 295, "Brazil"))]  # fmt: skip
    file = upload(person, "orders.csv", "\n".join(["Month,Orders,Country", *rows]).encode())
    until(lambda: person.caller.get(f"files/{file['id']}/")["searchable"], "the file can be searched")
    project = person.caller.post("projects/", {"name": "Orders"}, expect=201)
    person.caller.post(f"projects/{project['id']}/files/", {"file": file["id"]}, expect=201)
    place = str(person.caller.post("conversations/", {"project": project["id"]}, expect=201)["id"])
    search = {"tool_calls": [{"name": "search_files", "arguments": {"query": "orders in February"}}]}
    text = (
        "| Month | Orders | |\n| --- | --- | --- |\n| February | 287 | [1] |\n| March | 412 | [1] |\n\n"
        "In February there were 287 orders from Peru [1]."
    )
    turn = ask(person, place, caller_of_tools, "How many?", search, {"text": text})
    part = turn["parts"][-1]
    whole = FileText.objects.get(file=file["id"]).text
    assert [
        whole[each["sentence_start"] : each["sentence_end"]].split(",")[0].strip("| ").split()[0]
        for each in part["places"]
    ] == [
        "February",
        "March",
        "February",
    ]
    assert [(each["citation"], each["reasons"]) for each in part["check"]["doubts"]] == [
        (1, [{"reason": "number", "words": "412"}])
    ]
