"""Programs that use the API with a token, without a server in between."""

from typing import Any

from django.test import Client

from accounts.models import User
from accounts.services import create_token


class Program:
    """A person's program, with a token of some scopes."""

    def __init__(self, user: User, *scopes: str, **fields: Any) -> None:
        self.row, token = create_token(user=user, name="program", scopes=scopes, **fields)
        self.client = Client(headers={"Authorization": f"Bearer {token}"}, raise_request_exception=False)

    def ask(self, method: str, url: str, body: Any = None) -> Any:
        return self.client.generic(method, url, body or {}, content_type="application/json")

    def post(self, url: str, body: Any) -> Any:
        return self.client.post(url, body, content_type="application/json")
