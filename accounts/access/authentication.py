"""How a request or a socket says who it is: by a bearer token or the browser's session."""

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
from core.audit.origin import with_token
from core.logs.context import learn
from core.net.bearer import bearer_token
from workspace.models.settings import workspace_at

LAST_USED_GRAIN = timedelta(minutes=1)  # one write a minute at most, not one a request
SOCKET_SCOPE = "chat"


def bearer(request: HttpRequest) -> str | None:
    return bearer_token(request.headers.get("Authorization", ""))


def token_digest(token: str) -> str:
    # A plain hash is enough: the token carries 256 random bits, so there is nothing to guess.
    return hashlib.sha256(token.encode()).hexdigest()


def user_of_token(token: str) -> tuple[User, ApiToken]:
    """Raises `AuthenticationFailed` for a token that is unknown, expired or of an inactive user."""
    row = ApiToken.objects.usable().select_related("user").filter(digest=token_digest(token)).first()
    if row is None:
        raise exceptions.AuthenticationFailed(
            gettext("This token is unknown or has expired. Create a new one on the settings page."), code="bad_token"
        )
    now = timezone.now()
    if row.last_used is None or now - row.last_used > LAST_USED_GRAIN:
        ApiToken.objects.filter(pk=row.pk).update(last_used=now)
    with_token(row.pk, row.name)
    learn(user_id=row.user_id)
    return row.user, row


@dataclass(frozen=True, slots=True)
class Credential:
    """What a person's socket or stream of events was opened with, and ends with: a token (its `digest`), or a session,
    by its key and the hash of the password it was made under. A token has to keep the `scopes` it was used for."""

    person: UUID
    digest: str = ""
    session: str = ""
    password: str = ""
    scopes: frozenset[str] = frozenset({SOCKET_SCOPE})

    @classmethod
    def of(cls, request: HttpRequest, user: User) -> "Credential":
        """Of a request that this person has signed."""
        token = bearer(request)
        return cls(user.pk, token_digest(token)) if token else cls.of_session(request.session, user)

    @classmethod
    def of_session(cls, session: SessionBase, user: User) -> "Credential":
        return cls(user.pk, "", session.session_key or "", session.get(HASH_SESSION_KEY, ""))


def holding(credentials: Collection[Credential]) -> set[Credential]:
    """Those that still sign somebody in, by two queries whatever their number. A session does not while its person
    lacks the second factor that the workspace asks for, or has a password that somebody else chose."""
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
    """Whom a bearer token or, without one, the key of a session signs in; None for one that has ended."""
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
    """Who opens a WebSocket: a program with a bearer token, or a browser with its session and origin.

    A page cannot set the header `Authorization`, so what carries it is no page of another site that rides on a
    session: its origin says nothing. Everything else goes to `browsers`.
    """

    def __init__(self, programs: Any, browsers: Any) -> None:
        self.programs = programs
        self.browsers = browsers

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        token = bearer_token(dict(scope["headers"]).get(b"authorization", b"").decode("latin-1"))
        if token is None:
            return await self.browsers(scope, receive, send)
        user, row = await database_sync_to_async(_signed_in, thread_sensitive=False)(token)
        return await self.programs({**scope, "user": user, "token": row}, receive, send)


class SameOrigin:
    """Refuses a browser's WebSocket from anywhere but this scheme, host and port or one of `CSRF_TRUSTED_ORIGINS`.

    It is Django's check of forms. A session's cookie is sent from every port of a host, so the host says too little.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        scheme = "https" if scope.get("scheme") == "wss" else "http"
        request = ASGIRequest({**scope, "type": "http", "method": "GET", "scheme": scheme}, BytesIO())
        check = CsrfViewMiddleware(lambda _: None)  # type: ignore[arg-type]  # never called
        admitted = "Origin" in request.headers and check._origin_verified(request)  # type: ignore[attr-defined]  # Django has no public name for it
        answering: Any = self.app if admitted else WebsocketDenier()
        return await answering(scope, receive, send)


def _signed_in(token: str) -> tuple[User | AnonymousUser, ApiToken | None]:
    """Nobody for a token that is unknown, has ended or may not chat."""
    try:
        user, row = user_of_token(token)
    except AuthenticationFailed:
        return AnonymousUser(), None
    return (user, row) if SOCKET_SCOPE in row.scopes else (AnonymousUser(), None)
