"""Programs on the WebSocket: a bearer token in place of a browser's session and origin."""

from typing import Any

from channels.db import database_sync_to_async
from django.contrib.auth.models import AnonymousUser
from rest_framework.exceptions import AuthenticationFailed

from accounts.access.authentication import user_of_token
from accounts.models import ApiToken, User

SCOPE = "chat"


class TokenOrSession:
    """A page cannot set the header `Authorization`, so what carries it is no page of another site that rides on a
    session: its origin says nothing. Everything else goes to `browsers`.
    """

    def __init__(self, programs: Any, browsers: Any) -> None:
        self.programs = programs
        self.browsers = browsers

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        scheme, _, token = given.partition(" ")
        if scheme.lower() != "bearer":
            return await self.browsers(scope, receive, send)
        user, row = await database_sync_to_async(_signed_in, thread_sensitive=False)(token.strip())
        return await self.programs({**scope, "user": user, "token": row}, receive, send)


def _signed_in(token: str) -> tuple[User | AnonymousUser, ApiToken | None]:
    """Nobody for a token that is unknown, has ended or may not chat."""
    try:
        user, row = user_of_token(token)
    except AuthenticationFailed:
        return AnonymousUser(), None
    return (user, row) if SCOPE in row.scopes else (AnonymousUser(), None)
