from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.test.utils import override_settings, setup_databases
from pytest_django import DjangoDbBlocker

from accounts.models import User
from accounts.services import create_token
from llm.models import Model, Provider
from llm.services import save_provider
from personas.models import BudgetProfile, SystemPrompt
from personas.services import save_prompt, set_default_profile
from tests.product import Caller, Product, database_url, running

PASSWORD = "correct horse battery"


@dataclass
class Person:
    """Somebody with an account, whose rows are really there (committed), and a program that acts for them."""

    username: str
    password: str
    user: User
    token: str
    caller: Caller


@pytest.fixture(scope="session", autouse=True)
def _fast_passwords() -> Iterator[None]:
    before = django_settings.PASSWORD_HASHERS
    django_settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher", *before]
    yield
    django_settings.PASSWORD_HASHERS = before


@pytest.fixture(scope="session", autouse=True)
def _nothing_collected() -> Iterator[None]:
    """Pages that a test asks Django for need no static files; the product that it starts collects its own."""
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    with override_settings(STATIC_ROOT=None, STORAGES={**django_settings.STORAGES, "staticfiles": plain}):
        yield


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None, django_db_modify_db_settings: None, django_db_blocker: DjangoDbBlocker
) -> None:
    """The test database, also for tests without the django_db mark. It goes with the server it is on."""
    with django_db_blocker.unblock():
        setup_databases(verbosity=0, interactive=False)


@pytest.fixture(scope="session")
def product(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Product]:
    """The whole product, once per test process. Tests keep apart by using a person of their own each."""
    with (
        django_db_blocker.unblock(),
        running(DATABASE_URL=database_url(connection.settings_dict)) as started,
    ):
        save_provider(
            name="Scripted",
            kind=Provider.Kind.OPENAI,
            base_url=started.model.openai_url,
            api_key="secret-of-the-scripted-provider",
            models=[("scripted", 128_000)],
            default=True,
        )
        save_prompt(user=None, kind=SystemPrompt, text="You are being tested.")
        set_default_profile(profile=BudgetProfile.objects.create(name="Standard"))
        yield started


@pytest.fixture
def committed(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Access to the database without a transaction around the test: what it writes, the product's processes see."""
    with django_db_blocker.unblock():
        yield


def make_person(product: Product) -> Person:
    name = f"person-{uuid4().hex[:12]}"
    user = User.objects.create_user(name, password=PASSWORD)
    _, token = create_token(user=user, name="test")
    return Person(name, PASSWORD, user, token, Caller(product, token))


@pytest.fixture
def person(product: Product, committed: None) -> Person:
    return make_person(product)


@pytest.fixture
def stranger(product: Product, committed: None) -> Person:
    return make_person(product)


@pytest.fixture
def caller(person: Person) -> Caller:
    return person.caller


@pytest.fixture
def scripted_model_row(product: Product, committed: None) -> Model:
    return Model.objects.get(name="scripted")
