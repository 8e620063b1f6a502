"""Every operation of the API with made-up requests, some as described and some not: none fails on the server's side,
and no answer is other than the description says. `make fuzz` does the same for longer (`FUZZ_EXAMPLES`)."""

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pytest_django.fixtures import Settings
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi import checks as openapi

from accounts.models import ApiToken, User
from accounts.services import create_token
from tests.config.household import Household

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "6"))  # of each kind for each operation
CHECKS = [
    schemathesis.checks.not_a_server_error,
    openapi.status_code_conformance,
    openapi.content_type_conformance,
    openapi.response_schema_conformance,
]
# These stream, on other connections than the one that has this test's rows: see test_wire.py, test_export_import.py,
# tests/contrib/ag_ui/.
ELSEWHERE = {"turns_events", "export", "ag_ui_run"}


@cache  # it takes half a second, and every group of operations asks for it
def description() -> Any:
    return SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]  # theirs is untyped


OPERATIONS = sorted(
    {
        (operation["tags"][0], operation["operationId"])
        for path in description()["paths"].values()
        for operation in path.values()
    }
)
TAGS = sorted({tag for tag, name in OPERATIONS if name not in ELSEWHERE})


@cache
def loaded() -> Any:
    schema = schemathesis.openapi.from_dict(description())
    schema.app = get_wsgi_application()
    return schema


class _Undone(Exception):
    """Rolls back the changes of a request."""


@pytest.fixture(autouse=True)
def _one_connection() -> Iterator[None]:
    """A request would give the connection back, with the test's transaction; Django's own test client does the same."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def token(household: Household, settings: Settings, tmp_path: Any) -> str:
    settings.MEDIA_ROOT = tmp_path
    owner = next(row for row in household.rows if isinstance(row, User))
    owner.is_staff = owner.is_superuser = True
    owner.save()
    return create_token(user=owner, name="fuzz", scopes=ApiToken.SCOPES)[1]


@pytest.mark.parametrize("tag", TAGS)
def test_no_request_fails_and_no_answer_is_undescribed(
    tag: str, household: Household, token: str, record_property: Any
) -> None:
    schema = loaded()
    requests, wrong = 0, []
    for name in (name for of, name in OPERATIONS if of == tag and name not in ELSEWHERE):
        operation = schema.find_operation_by_id(name)
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try:
                requests += _ask_often(operation, mode, household, token)
            except (Exception, BaseExceptionGroup) as error:  # every operation is told of, not the first alone
                wrong.append(f"{name}, {mode.value}:\n{error}")
    record_property("requests", requests)
    assert not wrong, "\n\n".join(wrong)


def _ask_often(operation: Any, mode: GenerationMode, household: Household, token: str) -> int:
    """How many requests it made."""
    count = 0

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=EXAMPLES < 20,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), with_known_id=st.sampled_from([True, True, True, False]))
    def ask(case: Case[Any], with_known_id: bool) -> None:
        nonlocal count
        count += 1
        if with_known_id:
            _point_at_what_is_there(case, household)
        try:
            with transaction.atomic():
                case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, checks=CHECKS)
                raise _Undone
        except _Undone:
            pass

    ask()
    return count


def _point_at_what_is_there(case: Case[Any], household: Household) -> None:
    """Put the ids of existing rows into the path, and the first page: otherwise every answer would be 404."""
    (case.query or {}).pop("cursor", None)
    segments = case.path.strip("/").split("/")
    for name in list(case.path_parameters or {}):
        where = segments.index("{" + name + "}")
        key = f"{segments[where - 1]}/{'pk' if name == 'id' else name}"
        if key in household.values:
            case.path_parameters[name] = household.values[key]
