"""Notices of pages, the API, the plan and reports about a re-ranker that fails."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse

from files.models import Reranker
from llm.models import Model
from tests.application import Application
from tests.chat.citing import SEARCH, ask
from tests.chat.documents import ask_and_wait, upload
from tests.chat.test_project_files import put_together, searchable, small_model
from tests.conftest import Person
from tests.files.rerankers import NOT_ORDERED, ScriptedReranker, row_of
from tests.llm.raw_server import answer


@pytest.fixture
def failing() -> Iterator[Reranker]:
    """Active for everybody, so it goes with the test."""
    with ScriptedReranker(broken=answer("{}", status="500 Internal Server Error")) as server:
        row = row_of(server, name=f"Ours {uuid4().hex[:8]}")
        row.save()
        yield row
        row.delete()


def test_page_api_plan_and_reports_say_that_the_first_order_stayed(
    application: Application, person: Person, scripted_model_row: Model, failing: Reranker
) -> None:
    note = NOT_ORDERED.replace("Ours", failing.name)
    filler = " ".join(f"Clause {number} is about nothing in particular." for number in range(600))
    big = upload(person, "contract.txt", f"{filler} The platypus fee is 4711 euros. {filler}".encode())
    searchable(person, big)
    place, mark = put_together(person, big), uuid4().hex
    project = person.caller.get(f"conversations/{place}/")["project"]
    response = person.caller.post(f"projects/{project}/search/", {"query": "platypus fee"}, expect=200)
    assert "4711" in response["results"][0]["text"] and response["notes"][0].startswith(note)
    client = Client()
    client.force_login(person.user)
    page = client.get(reverse("projects:search", args=[project]), {"q": "platypus fee"}).content.decode()
    assert note in page and "4711" in page
    model, text = small_model(scripted_model_row), f"How much is the platypus fee? {mark}"
    plan = person.caller.post(f"conversations/{place}/plan/", {"text": text, "model": str(model.pk)}, expect=200)
    turn = ask_and_wait(person, place, text, models=[str(model.pk)])
    assert plan["notes"] == person.caller.get(f"turns/{turn['id']}/report/")["notes"]
    assert plan["notes"][0].startswith(note)
    clever = small_model(scripted_model_row, tools=True)
    turn = ask(person, place, clever, "How much is it?", SEARCH, {"text": "It is 4711 euros."})
    [report_note] = person.caller.get(f"turns/{turn['id']}/report/")["notes"]
    assert report_note.startswith(note)
