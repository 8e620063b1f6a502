from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.test.utils import override_settings, setup_databases
from django.utils import timezone
from django.utils.translation import override
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from psycopg.sql import SQL, Identifier
from pytest_django import DjangoDbBlocker
from pytest_django.fixtures import Settings

from accounts.models import User
from accounts.services import create_token
from llm.models import Model, Provider
from llm.services import upsert_provider
from personas.models import BudgetProfile, SystemPrompt
from personas.services import save_prompt, set_default_profile
from scripts.services import migrated_database
from tests.application import Application, working
from tests.kept_promises import broken_promises
from tests.product import Caller, Product, Server, database_url, in_thread, running
from tests.scheduling import PRODUCT, group_of
from tests.scripted_model import ScriptedModel
from tests.spilled import spilled

PASSWORD = "correct horse battery"

# No property fails because the machine is busy: by default each example has 200 ms, and making one is timed, too.
hypothesis_settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("busy")


@dataclass
class Person:
    """A person whose rows are committed, and a program with their token."""

    username: str
    password: str
    user: User
    token: str
    caller: Caller


@dataclass(frozen=True)
class Workspace:
    """`directory` holds the files that people upload."""

    model: ScriptedModel
    directory: Path


@pytest.fixture(autouse=True)
def language() -> Iterator[None]:
    """A request of a test's own process leaves its language behind, to the tests that come after it."""
    with override("en"):
        yield


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
        _create_test_database()


def _create_test_database() -> None:
    """Copy the migrated database. A server without one gets one by migrating."""
    name = connection.creation._get_test_db_name()  # type: ignore[attr-defined]  # the stubs lack it
    migrated, test = Identifier(migrated_database()), Identifier(name)
    with connection._nodb_cursor() as server:
        server.execute("SELECT pg_advisory_lock(1)")  # until the cursor's connection closes
        server.execute("SELECT FROM pg_database WHERE datname = %s", [migrated_database()])
        if server.fetchone() is None:
            setup_databases(verbosity=0, interactive=False)
            connection.close()
            connection.close_pool()  # type: ignore[attr-defined]  # a database in use cannot be copied; the stubs know no pool
            server.execute(SQL("CREATE DATABASE {} TEMPLATE {}").format(migrated, test))
            return
        server.execute(SQL("DROP DATABASE IF EXISTS {}").format(test))
        server.execute(SQL("CREATE DATABASE {} TEMPLATE {}").format(test, migrated))
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # as above
    django_settings.DATABASES[connection.alias]["NAME"] = connection.settings_dict["NAME"] = name


@pytest.fixture(scope="session")
def workspace(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workspace]:
    """The rows of an installation with a scripted model, once per test process."""
    with ScriptedModel() as model:
        with django_db_blocker.unblock():
            upsert_provider(
                name="Scripted",
                kind=Provider.Kind.OPENAI,
                base_url=model.openai_url,
                api_key="secret-of-the-scripted-provider",
                models=[("scripted", 128_000)],
                default=True,
            )
            save_prompt(user=None, kind=SystemPrompt, text="You are being tested.")
            set_default_profile(profile=BudgetProfile.objects.create(name="Standard"))
        yield Workspace(model, tmp_path_factory.mktemp("workspace"))


@pytest.fixture(autouse=True)
def _prompts_keep_the_rules(request: pytest.FixtureRequest, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Fail a test during which the scripted model received a prompt that breaks a rule of the order book.

    The model then forgets the test's requests: each look of a later test would go through all of them.
    """
    since = timezone.now()
    yield
    if "workspace" in request.fixturenames:
        model: ScriptedModel = request.getfixturevalue("workspace").model
        with django_db_blocker.unblock():
            look = partial(broken_promises, model, since)
            # The rows of a running product are committed, and a browser leaves an event loop in this thread.
            broken = [*model.take_broken_rules(), *(in_thread(look) if "product" in request.fixturenames else look())]
        model.forget()
        assert broken == []


@pytest.fixture(scope="session")
def product(workspace: Workspace, django_db_blocker: DjangoDbBlocker) -> Iterator[Product]:
    """Run the whole product once in a run. Each test uses a person of its own."""
    environment = {"DATABASE_URL": database_url(connection.settings_dict), "DATA_DIR": str(workspace.directory)}
    environment["EMAIL_URL"] = "smtp://127.0.0.1:9"  # where nothing takes a mail: pages say that there is one
    environment |= {"LOG_LEVEL": "INFO", "LOG_FORMAT": "json"}
    with django_db_blocker.unblock(), ExitStack() as stack:
        try:
            started = stack.enter_context(running(workspace.model, **environment))
        except RuntimeError as error:
            pytest.exit(f"The product of the tests did not start.\n{error}", returncode=pytest.ExitCode.TESTS_FAILED)
        yield started
        assert not spilled(started), "the product of these tests has logged what it must not"


@pytest.fixture
def application(workspace: Workspace, committed: None, settings: Settings) -> Iterator[Application]:
    """Run the application in this process. Each test uses a person of its own."""
    settings.MEDIA_ROOT = workspace.directory / "files"  # where the product's processes look, too
    with working():
        yield Application(workspace.model, workspace.directory)
    learnt = Model.objects.filter(name="scripted").values_list("learnt_window", "learnt_on")
    assert list(learnt) == [(None, {})], "something was learnt of the model of all tests, which then answers otherwise"


@pytest.fixture
def committed(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Allow access to the database without a transaction, so that the product's processes see the test's rows.

    pytest-django's `transactional_db` empties every table after the test. The guard of the audit refuses that, and the
    next tests need the rows of migrations and of `workspace`.
    """
    with django_db_blocker.unblock():
        yield


def make_person(server: Server) -> Person:
    name = f"person-{uuid4().hex[:12]}"
    user = User.objects.create_user(name, password=PASSWORD)
    _, token = create_token(user=user, name="test")
    return Person(name, PASSWORD, user, token, Caller(server, token))


@pytest.fixture
def server(request: pytest.FixtureRequest, committed: None) -> Server:
    """Return the server for a test: the running product if the test has its mark or fixture, else the application."""
    name = "product" if group_of(request.node) == PRODUCT else "application"
    server: Server = request.getfixturevalue(name)
    return server


@pytest.fixture
def person(server: Server) -> Person:
    return make_person(server)


@pytest.fixture
def stranger(server: Server) -> Person:
    return make_person(server)


@pytest.fixture
def caller(person: Person) -> Caller:
    return person.caller


@pytest.fixture
def scripted_model_row(workspace: Workspace, committed: None) -> Model:
    return Model.objects.get(name="scripted")
