import pytest

from accounts.models import User
from llm.models import Model, Provider
from tests.personas.programs import Program


@pytest.fixture
def olga(db: None) -> Program:
    return Program(User.objects.create_user("olga"))


@pytest.fixture
def otto(db: None) -> Program:
    return Program(User.objects.create_user("otto"))


@pytest.fixture
def admin(db: None) -> Program:
    return Program(User.objects.create_superuser("admin"), ["chat", "admin"])


@pytest.fixture
def model(db: None) -> Model:
    provider = Provider.objects.create(name="P", base_url="http://127.0.0.1:9/v1", api_key="sk-never-shown")
    return Model.objects.create(provider=provider, name="m", context_window=8_000, tools=True, tokenizer="o200k_base")
