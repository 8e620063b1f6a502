"""Limits of requests a minute from one address, for pages that need no sign-in."""

from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

pytestmark = pytest.mark.django_db
PAGES = [("sign-in", "/login/"), ("sign-in", "/admin/login/"), ("shared", "/s/no-such-share/")]


@pytest.mark.parametrize(("kind", "page"), PAGES)
def test_a_page_for_anybody_is_not_opened_without_end(kind: str, page: str, settings: Settings, client: Client) -> None:
    settings.PAGE_RATES = {kind: 2}
    here: Any = {"REMOTE_ADDR": f"203.0.113.{len(page)}"}
    answers = [client.get(page, **here) for _ in range(6)]  # of which three are in one minute of the clock
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert answers[0].status_code != 429
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert "per minute" in refused.content.decode()
    assert client.get(page, REMOTE_ADDR=f"198.51.100.{len(page)}").status_code != 429
