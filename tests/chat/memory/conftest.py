"""People whose models may propose facts, and a model that calls tools."""

from collections.abc import Iterator

import pytest

from chat.memory.models import Profile
from llm.models import Model
from tests.application import Application
from tests.chat.memory.remembering import Rememberer
from tests.chat.runs.working import tool_model
from tests.conftest import Person
from workspace.models import Workspace


@pytest.fixture(autouse=True)
def _as_by_default(committed: None) -> Iterator[None]:
    yield
    Workspace.objects.all().delete()


@pytest.fixture
def rememberer(application: Application, committed: None, person: Person, scripted_model_row: Model) -> Rememberer:
    """Return a person who is asked about each fact, with a model that calls tools."""
    Profile.objects.create(person=person.user, proposals=Profile.Proposals.ASK)
    return Rememberer(application, person, tool_model(scripted_model_row))
