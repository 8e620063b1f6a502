"""People whose models may propose facts, and a model that calls tools."""

import pytest

from chat.memory.models import Profile
from llm.models import Model
from tests.application import Application
from tests.chat.memory.remembering import Rememberer
from tests.chat.runs.working import tool_model
from tests.conftest import Person


@pytest.fixture
def rememberer(application: Application, committed: None, person: Person, scripted_model_row: Model) -> Rememberer:
    """Return a person who is asked about each fact, with a model that calls tools."""
    Profile.objects.create(person=person.user, proposals=Profile.Proposals.ASK)
    return Rememberer(application, person, tool_model(scripted_model_row))
