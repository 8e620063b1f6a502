"""Authentication of requests and sockets, by a bearer token or the browser's session."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO
from typing import Any
from uuid import UUID

from allauth.mfa.models import Authenticator
from channels.db import database_sync_to_async
from channels.security.websocket import WebsocketDenier
from django.contrib.auth import HASH_SESSION_KEY
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.base import SessionBase
from django.core.handlers.asgi import ASGIRequest
from django.db.models import Exists, OuterRef
from django.http import HttpRequest
from django.middleware.csrf import CsrfViewMiddleware
from django.utils import timezone
from django.utils.translation import gettext
from rest_framework import authentication, exceptions
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from accounts.access.second_factor import FACTORS, is_required
from accounts.models import ApiToken, Session, User
from core.asgi_types import AsgiScope
from core.audit.origin import set_token
from core.logs.context import add_log_fields
from core.net.bearer import api_token, bearer_token
from workspace.models.settings import workspace_at

LAST_USED_INTERVAL = timedelta(minutes=1)  # at most one write a minute, not one for each request
SOCKET_SCOPE = "chat"


def bearer(request: HttpRequest) -> str | None:
    return api_token(request.path, request.headers.get("Authorization", ""), request.headers.get("X-Api-Key", ""))


def token_digest(token: str) -> str:
    # A plain hash is enough: the token carries 256 random bits, so it cannot be guessed.
    return hashlib.sha256(token.encode()).hexdigest()


def user_of_token(token: str) -> tuple[User, ApiToken]:
    """Return the user and the row of a token. Raises `AuthenticationFailed` if it is unknown or no longer usable."""
    row = ApiToken.objects.usable().select_related("user").filter(digest=token_digest(token)).first()
    if row is None:
        raise exceptions.AuthenticationFailed(
            gettext("This token is unknown or has expired. Create a new one on the settings page."), code="bad_token"
        )
    now = timezone.now()
    if row.last_used is None or now - row.last_used > LAST_USED_INTERVAL:
        ApiToken.objects.filter(pk=row.pk).update(last_used=now)
    set_token(row.pk, row.name)
    add_log_fields(user_id=row.user_id)
    return row.user, row


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential of a user's socket or event stream. The connection ends when the credential does.

    It is either a token (`digest`) or a session: `session` is the session key, and `password` is the password hash at
    the sign-in. A token must keep the `scopes` that the connection uses.
    """

    person: UUID
    digest: str = ""
    session: str = ""
    password: str = ""
    scopes: frozenset[str] = frozenset({SOCKET_SCOPE})

    @classmethod
    def of(cls, request: HttpRequest, user: User) -> "Credential":
        """Return the credential of an authenticated request."""
        token = bearer(request)
        return cls(user.pk, token_digest(token)) if token else cls.of_session(request.session, user)

    @classmethod
    def of_session(cls, session: SessionBase, user: User) -> "Credential":
        return cls(user.pk, "", session.session_key or "", session.get(HASH_SESSION_KEY, ""))


def valid_credentials(credentials: Collection[Credential]) -> set[Credential]:
    """Return the credentials that are still valid. Makes two queries, whatever the number of credentials.

    A session is not valid while its user lacks a required second factor, or has a password that another person chose.
    """
    digests = {each.digest for each in credentials if each.digest}
    usable = dict(ApiToken.objects.usable().filter(digest__in=digests).values_list("digest", "scopes"))
    keys = {each.session for each in credentials if each.session}
    rows = Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now(), user__is_active=True)
    factors = Authenticator.objects.filter(user=OuterRef("user"), type__in=FACTORS)
    passwords = {
        row.session_key: row.user.get_session_auth_hash()
        for row in rows.select_related("user").annotate(secured=Exists(factors))
        if row.user
        and not row.user.password_once
        and (row.secured or not is_required(row.user, workspace_at(getattr(row, "workspace_version", None))))
    }
    return {
        each
        for each in credentials
        if (each.digest in usable and each.scopes.issubset(usable[each.digest]))
        or (each.session and passwords.get(each.session) == each.password)
    }


def user_id_of(token: str, session: str) -> UUID | None:
    """Return the id of the user of a bearer token or, without one, of a session key. None if it is no longer valid."""
    if token:
        return ApiToken.objects.usable().filter(digest=token_digest(token)).values_list("user_id", flat=True).first()
    rows = Session.objects.filter(session_key=session, expire_date__gt=timezone.now(), user__is_active=True)
    return rows.values_list("user_id", flat=True).first()


class TokenAuthentication(authentication.BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        token = bearer(request)
        return user_of_token(token) if token else None

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class SessionAuthentication(authentication.SessionAuthentication):
    def authenticate_header(self, request: Request) -> str:
        return "Session"


class TokenOrSession:
    """ASGI app that sends a WebSocket with a bearer token to `programs`, and all others to `browsers`.

    A web page cannot set the header `Authorization` on a WebSocket. So a request with this header cannot be another
    site that abuses the user's session, and its origin need not be checked.
    """

    def __init__(self, programs: Any, browsers: Any) -> None:
        self.programs = programs
        self.browsers = browsers

    async def __call__(self, scope: AsgiScope, receive: Any, send: Any) -> Any:
        token = bearer_token(dict(scope["headers"]).get(b"authorization", b"").decode("latin-1"))
        if token is None:
            return await self.browsers(scope, receive, send)
        user, row = await database_sync_to_async(_find_user, thread_sensitive=False)(token)
        return await self.programs({**scope, "user": user, "token": row}, receive, send)


class SameOrigin:
    """ASGI app that refuses a browser's WebSocket unless its origin is this site's or in `CSRF_TRUSTED_ORIGINS`.

    This is the check that Django makes for forms. It compares the scheme and the port too, since browsers send the
    session cookie with requests from pages on any port of the host.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: AsgiScope, receive: Any, send: Any) -> Any:
        scheme = "https" if scope.get("scheme") == "wss" else "http"
        request = ASGIRequest({**scope, "type": "http", "method": "GET", "scheme": scheme}, BytesIO())
        check = CsrfViewMiddleware(lambda _: None)  # type: ignore[arg-type]  # never called
        admitted = "Origin" in request.headers and check._origin_verified(request)  # type: ignore[attr-defined]  # Django has no public name for it
        app: Any = self.app if admitted else WebsocketDenier()
        return await app(scope, receive, send)


def _find_user(token: str) -> tuple[User | AnonymousUser, ApiToken | None]:
    """Return the user and row of a token, or an anonymous user if it is not usable or lacks the chat scope."""
    try:
        user, row = user_of_token(token)
    except AuthenticationFailed:
        return AnonymousUser(), None
    return (user, row) if SOCKET_SCOPE in row.scopes else (AnonymousUser(), None)
