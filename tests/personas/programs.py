"""A program that uses the API with a token, without a server in between."""

import json
from typing import Any

from django.test import Client

from accounts.models import User
from accounts.services import create_token


class Program:
    def __init__(self, user: User, scopes: list[str] | None = None) -> None:
        self.user = user
        self.client = Client()
        self.token = create_token(user=user, name="test", scopes=scopes)[1]

    def ask(self, method: str, path: str, body: Any = None, match: str | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"} | ({} if match is None else {"If-Match": match})
        content = "" if body is None else json.dumps(body)
        return self.client.generic(method, f"/api/v1/{path}", content, content_type="application/json", headers=headers)

    def get(self, path: str, expect: int = 200) -> Any:
        return checked(self.ask("GET", path), expect)

    def post(self, path: str, body: Any = None, expect: int = 201, match: str | None = None) -> Any:
        return checked(self.ask("POST", path, body or {}, match), expect)

    def patch(self, path: str, body: Any, expect: int = 200, match: str | None = None) -> Any:
        return checked(self.ask("PATCH", path, body, match), expect)

    def delete(self, path: str, expect: int = 204, match: str | None = None) -> Any:
        return checked(self.ask("DELETE", path, match=match), expect)


def checked(response: Any, expect: int) -> Any:
    assert response.status_code == expect, f"{response.status_code}: {response.content.decode()}"
    return response.json() if response.content else None


def wrong(problem: Any) -> dict[str, str]:
    """The sentences of a problem by the fields they are about."""
    return {error["attr"]: error["detail"] for error in problem["errors"]}


def create_persona(program: Program, **fields: object) -> str:
    return str(program.post("personas/", {"name": "Legal", "instructions": "Cite.", **fields})["id"])
