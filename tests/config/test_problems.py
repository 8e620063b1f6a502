"""Errors that no view raises itself, as programs get them."""

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from accounts.models import User
from tests.accounts.programs import Program

pytestmark = pytest.mark.django_db


def test_a_body_that_is_too_large_is_refused_and_is_no_failure(settings: Settings) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1_048_576
    program = Program(User.objects.create_user("olga"), "chat")
    refused = program.post("/api/v1/conversations/", {"title": "x" * 1_100_000})
    assert (refused.status_code, refused.json()["code"]) == (413, "too_large")


def test_an_unknown_address_of_the_api_is_a_problem_too(client: Client) -> None:
    missing = client.get("/api/v1/nowhere/")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    assert missing.headers["Content-Type"] == "application/problem+json"
