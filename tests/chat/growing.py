"""Conversations that grow until they are summarised, and the requests for their summaries."""

from typing import Any
from uuid import UUID, uuid4

from chat.models import SummaryJob
from llm.models import Model, Provider
from personas.models import BudgetProfile, Persona
from tests.conftest import Person
from tests.product import Server, until

LIMIT = 12_288 - 1_024 - 40  # of the profile, before the safety margin for a tokenizer that is not known
FILLER = " ".join(f"word{number}" for number in range(100))  # about 200 tokens


def wendy(person: Person, **fields: Any) -> Persona:
    numbers: dict[str, Any] = {"window": 12_288, "ceiling": 7_800, "floor": 3_000, "keep_recent": 8, **fields}
    profile = BudgetProfile.objects.create(name=f"wendy {uuid4().hex[:8]}", **numbers)
    return Persona.objects.create(owner=person.user, name="Wendy", budget_profile=profile)


def small(person: Person, **fields: Any) -> Persona:
    """Compresses after a few turns of about 400 tokens."""
    return wendy(person, **{"window": 4_096, "ceiling": 1_500, "floor": 700, "keep_recent": 4, **fields})


def conversation(person: Person, persona: Persona) -> UUID:
    return UUID(person.caller.post("conversations/", {"persona": str(persona.pk)}, expect=201)["id"])


def turn(person: Person, place: UUID, mark: str, script: dict[str, Any] | None = None) -> dict[str, Any]:
    """A question of about 200 tokens and its answer of as many, and then no summary in the making any more."""
    started = person.caller.ask(f"{mark} {FILLER}", {"tokens": 100, "note": mark, **(script or {})}, str(place))
    ended: dict[str, Any] = person.caller.ended(started["id"])
    assert ended["status"] == "done", ended["error"]
    settled(person, place)
    return ended


def settled(person: Person, place: UUID) -> None:
    until(lambda: person.caller.get(f"conversations/{place}/")["state"] == "idle", "the conversation is idle")


def report(person: Person, ended: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = person.caller.get(f"turns/{ended['id']}/report/")
    return row


def until_summarised(person: Person, place: UUID, script: dict[str, Any] | None = None) -> list[str]:
    """Asks until the first job has ended; the marks of the questions."""
    marks: list[str] = []
    while not SummaryJob.objects.filter(conversation=place).exclude(status__in=SummaryJob.LIVE).exists():
        assert len(marks) < 20, "no summary was made"
        marks.append(f"q{len(marks)}-{uuid4().hex}")
        turn(person, place, marks[-1], script)
    return marks


def until_running(server: Server, person: Person, place: UUID, name: str) -> None:
    """Asks until a job is being carried out by the writer of this name."""
    while not SummaryJob.objects.filter(conversation=place).exists():
        person.caller.ended(person.caller.ask(f"hang {FILLER}", {"tokens": 100}, str(place))["id"])
    until(lambda: SummaryJob.objects.filter(conversation=place, status="running").exists(), "the job runs")
    server.model.arrived(name)


def writer(server: Server, name: str, script: dict[str, Any]) -> Model:
    """Create a model for summaries only, whose script can change."""
    endpoint = Model.objects.get(name="scripted").provider
    provider = Provider.objects.create(
        name=f"writer {name}", kind=endpoint.kind, base_url=endpoint.base_url, api_key=endpoint.api_key
    )
    return Model.objects.create(provider=provider, name=server.model.set_script(name, script), context_window=6_000)


def prompt(server: Server, mark: str) -> list[dict[str, Any]]:
    """Return the messages that the model got for the question with this mark. Later requests hold it as history."""
    first = next(record for record in server.model.finished(mark) if "# The form" not in record.text)
    messages: list[dict[str, Any]] = first.body["messages"]
    return messages


def summary_requests(server: Server, mark: str) -> list[dict[str, Any]]:
    return [record.body for record in server.model.finished(mark) if "# The form" in record.text]
