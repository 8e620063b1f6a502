"""Searching the web in a turn, against a search service of the test's own on loopback."""

import json
from uuid import uuid4

import pytest

from chat.tools.web import READERS
from llm.models import Model, WebSearch
from personas.models import Persona
from tests.application import Application
from tests.chat.documents import ask_and_wait
from tests.conftest import Person
from tests.llm.opening import document_of, opened
from tests.llm.raw_server import always, answer
from tests.projects.uploads import pdf


def test_a_web_search_is_numbered_carries_its_addresses_and_can_be_cited(
    application: Application, person: Person, search: None, caller_of_tools: Model
) -> None:
    mark = uuid4().hex
    call = {"tool_calls": [{"name": "web_search", "arguments": {"queries": ["tides today"]}}]}
    script = json.dumps({"steps": [call, {"text": "High water is at noon [1]."}]})
    place = person.caller.conversation()
    ended = ask_and_wait(person, place, f"Tides? {mark}\nscript: {script}", models=[str(caller_of_tools.pk)])
    results = [m["content"] for m in application.model.finished(mark)[-1].body["messages"] if m["role"] == "tool"]
    documents = json.loads(results[0])["documents"]
    assert [(each["document"], each["metadata"]) for each in documents] == [
        (1, "https://example.org/tides"),
        (2, "https://example.org/moon"),
    ]
    text = next(part for part in ended["parts"] if part["type"] == "text")
    assert text["citations"] == [{"number": 1, "title": "Tides", "href": "https://example.org/tides"}]


def test_open_url_does_not_reach_this_machine(
    application: Application, person: Person, search: None, caller_of_tools: Model
) -> None:
    mark = uuid4().hex
    call = {"tool_calls": [{"name": "open_url", "arguments": {"url": "http://127.0.0.1/livez"}}]}
    script = json.dumps({"steps": [call, {"text": "It was refused."}]})
    ask_and_wait(
        person, person.caller.conversation(), f"Open {mark}\nscript: {script}", models=[str(caller_of_tools.pk)]
    )
    messages = application.model.finished(mark)[-1].body["messages"]
    result = next(message["content"] for message in messages if message["role"] == "tool")
    assert result == "127.0.0.1 is not on the public internet, so it is not opened."


def test_a_persona_has_only_the_web_tools_it_names(
    application: Application, person: Person, search: None, caller_of_tools: Model
) -> None:
    persona = Persona.objects.create(owner=person.user, name="Quiet", instructions="Stay here.", tools=[])
    place = person.caller.post("conversations/", {"persona": str(persona.pk)}, expect=201)["id"]
    mark = uuid4().hex
    ask_and_wait(person, place, f"Tools? {mark}-1", models=[str(caller_of_tools.pk)])
    assert "tools" not in application.model.finished(f"{mark}-1")[0].body
    persona.tools = ["web_search"]
    persona.save()
    ask_and_wait(person, place, f"Tools? {mark}-2", models=[str(caller_of_tools.pk)])
    offered = [tool["function"]["name"] for tool in application.model.finished(f"{mark}-2")[0].body["tools"]]
    assert offered == ["web_search"]


def test_a_persona_whose_web_tools_are_not_there_says_so(person: Person, caller_of_tools: Model) -> None:
    assert not WebSearch.objects.filter(active=True).exists()
    persona = Persona.objects.create(owner=person.user, name="Scout", instructions="Look.", tools=["web_search"])
    place = person.caller.post("conversations/", {"persona": str(persona.pk)}, expect=201)["id"]
    body = {"text": "Look.", "model": str(caller_of_tools.pk)}
    plan = person.caller.post(f"conversations/{place}/plan/", body, expect=200)
    assert plan["notes"] == ["The persona cannot search the web: no search service is set up."]


@pytest.mark.parametrize(
    ("text", "tools", "offered"),
    [
        ("What is on https://example.org/help?", None, True),
        ("What is on example.org?", None, True),
        ("What is in contract.pdf?", None, False),
        ("What is the time?", None, False),
        ("What is the time?", ["open_url"], True),
        ("What is on example.org?", [], False),
    ],
)
def test_pages_are_opened_without_a_search_service(
    application: Application,
    person: Person,
    caller_of_tools: Model,
    text: str,
    tools: list[str] | None,
    offered: bool,
) -> None:
    """Offer open_url where a persona names it, or somebody has written an address."""
    assert not WebSearch.objects.filter(active=True).exists()
    body = {}
    if tools is not None:
        persona = Persona.objects.create(owner=person.user, name=f"Scout {uuid4().hex}", tools=tools)
        body["persona"] = str(persona.pk)
    place = person.caller.post("conversations/", body, expect=201)["id"]
    mark = uuid4().hex
    ask_and_wait(person, place, f"{text} {mark}", models=[str(caller_of_tools.pk)])
    names = [tool["function"]["name"] for tool in application.model.finished(mark)[0].body.get("tools", ())]
    assert ("open_url" in names, "web_search" in names) == (offered, False)
    ask_and_wait(person, place, f"And more? {mark}-2", models=[str(caller_of_tools.pk)])
    later = [tool["function"]["name"] for tool in application.model.finished(f"{mark}-2")[0].body.get("tools", ())]
    assert ("open_url" in later) == (offered and (tools is not None or "://" in text))


async def test_a_pdf_of_the_web_is_read_like_one_that_was_uploaded() -> None:
    served = answer(pdf("The fee is limited to 1000 euros.", "It is due in May."), media_type="application/pdf")
    text = document_of(await opened(always(served), "/contract.pdf", readers=READERS))["text"]
    assert "limited to 1000 euros" in text and "due in May" in text


@pytest.mark.parametrize(
    ("body", "why"),
    [(b"%PDF-1.4 and nothing more", "It is damaged"), (b"%PDF" + b"x" * 20_000_001, "larger than 20 MB")],
    ids=["damaged", "large"],
)
async def test_a_pdf_that_cannot_be_read_is_told(body: bytes, why: str) -> None:
    output = await opened(always(answer(body, media_type="application/pdf")), readers=READERS)
    assert output.error and why in output.text
