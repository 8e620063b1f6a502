"""The addresses that a token opens.

The tests walk the API's part of the URLconf, so a new address is covered when it is added.
"""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from accounts.models import ApiToken, User
from accounts.services import create_token
from tests.config.addresses import addresses

# By the first part of an address; a new part is refused below until somebody says what opens it.
SCOPES = {
    "conversations": "chat",
    "messages": "chat",
    "turns": "chat",
    "readings": "chat",
    "audit": "admin",
    "ag-ui": "chat",
    "summaries": "chat",
    "memories": "chat",
    "profile": "chat",
    "max-selected-document-tokens": "chat",
    "daily": "chat",
    "search": "chat",
    "speech": "chat",
    "shares": "chat",
    "team-shares": "chat",
    "shared-with-me": "chat",
    "export": "chat",
    "imports": "chat",
    "personas": "chat",
    "reminders": "chat",
    "prompts": "chat",
    "models": "chat",
    "usage": "admin",
    "files": "files",
    "projects": "projects",
    "invitations": "projects",
    "tasks": "tasks",
    "runs": "tasks",
    "budget-profiles": "admin",
    "system-prompts": "admin",
    "prompt-texts": "admin",
    "tokens": "admin",
    "groups": "admin",
    "webhooks": "admin",
    "connected-tools": "admin",
    "me": "admin",
    "workspace": "admin",
    "limits": "admin",
}
# What is read with less than it takes to change it; None is any token.
READING: dict[str, str | None] = {"budget-profiles": "chat", "me": None}
OPEN = ("/api/v1/schema/", "/api/v1/asyncapi/")  # descriptions, for anybody
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class AnyId(dict[str, str]):
    """Gives an id or date for every parameter. Without the scope, nothing looks it up."""

    def __contains__(self, key: object) -> bool:
        return True

    def __getitem__(self, key: str) -> str:
        return "2030-01-31" if key.startswith("daily/") else str(uuid4())


@pytest.fixture
def person_here(committed: None) -> Iterator[User]:
    """Without a transaction around the test: the stream of events gives its database connection back."""
    user = User.objects.create_user(f"scopes-{uuid4().hex}")
    yield user
    user.delete()


def scope_of(url: str, method: str) -> str | None:
    if url == "/api/v1/me/usage/":
        return "chat"
    part = url.removeprefix("/api/v1/").partition("/")[0]
    assert part in SCOPES, f"say which scope opens {url}"
    return READING[part] if method == "GET" and part in READING else SCOPES[part]


def is_missing_scope(response: Any) -> bool:
    return bool(response.status_code == 403 and json.loads(response.content)["code"] == "missing_scope")


@pytest.mark.parametrize("scope", ApiToken.SCOPES)
def test_a_token_opens_what_its_scope_names_and_nothing_else(person_here: User, scope: str) -> None:
    _, token = create_token(user=person_here, name="program", scopes=[scope])
    client = Client(headers={"Authorization": f"Bearer {token}"})
    checked = [each for each in addresses(AnyId()) if each.url.startswith("/api/v1/") and each.url not in OPEN]
    closed = set()
    for address in checked:
        for method in METHODS:
            needed = scope_of(address.url, method)
            if needed in (None, scope):
                if method == "GET":  # another might change something
                    assert not is_missing_scope(client.get(address.url)), address.url
                continue
            response = client.generic(method, address.url, "{}", content_type="application/json")
            if method == "GET" or response.status_code != 405:  # the stream of events can only be read
                assert is_missing_scope(response), (method, address.url, response.status_code, response.content)
                closed.add(address.url)
    assert len(checked) > 30
    assert closed


def test_a_stream_of_events_asks_for_the_scope_chat(person_here: User) -> None:
    url = f"/api/v1/turns/{uuid4()}/events/"
    for scope, status, code in (("files", 403, "missing_scope"), ("chat", 404, "not_found")):
        _, token = create_token(user=person_here, name="program", scopes=[scope])
        refused = Client().get(url, headers={"Authorization": f"Bearer {token}"})
        assert (refused.status_code, refused.json()["code"]) == (status, code)
    unknown = Client().get(url, headers={"Authorization": "Bearer gh_unknown"})
    assert (unknown.status_code, unknown.json()["code"]) == (401, "bad_token")
