"""Send the token of a person with each request to a tool server, and renew an expired token.

1. `PersonBearer.token` reads the grant. A fresh token is used unchanged.
2. An expired or refused token is refreshed. Only one process at a time refreshes the tokens of a grant: a server that
   rotates refresh tokens takes a second use of one for a theft, and ends the grant.
3. The refresh runs in a task of its own, so that a stopped turn does not lose the new tokens.
4. If the server refuses the refresh, the grant is marked as ended. Its person has to sign in again.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from types import ModuleType
from uuid import UUID

import httpx2
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_noop

from core.background import on_database
from core.sentences import Sentence
from llm.models import ToolGrant, ToolServer
from llm.models.tool_sign_in import MAX_ADDRESS
from llm.oauth.errors import GrantRefused, SignInRequired, SignInUnavailable
from llm.oauth.values import SignInTarget, TokenEndpoint, Tokens

EXPIRY_MARGIN = timedelta(seconds=30)  # a token counts as expired this long before its end
CLAIM_TIME = timedelta(seconds=30)  # longer than a refresh may take; afterwards another process may refresh
MAX_LIFETIME = 10 * 365 * 86_400  # seconds; a longer lifetime of a token is shortened to it
LAST_USED_PRECISION = timedelta(minutes=1)  # `last_used` is stored at most this often
POLL_SECONDS = 0.1  # between two looks at the grant while another process refreshes it
REFRESH_TIMEOUT = 25.0  # seconds to wait for a refresh
# Sentences for the person, and for the model that tells the person.
NOT_SIGNED_IN = gettext_noop("Each person must sign in to {name}. Sign in under “Connected tools” in the settings.")
ENDED = gettext_noop("The sign-in to {name} has ended. Sign in again under “Connected tools” in the settings.")
LOST = gettext_noop(
    "The sign-in to {name} cannot be read, since the server's key (SECRET_KEY) has changed. Sign in again under "
    "“Connected tools” in the settings."
)
SCOPE_MISSING = gettext_noop(
    "{name} needs another permission for this call. To give it, sign in again under “Connected tools” in the settings."
)
UNAVAILABLE = gettext_noop("The sign-in to {name} cannot be renewed at the moment. {why}")

logger = logging.getLogger(__name__)
_refreshes: set[asyncio.Task[None]] = set()  # strong references, since the event loop holds tasks only weakly


@dataclass(frozen=True, slots=True)
class _Refresh:
    """A refresh that this process has claimed."""

    version: int
    refresh_token: str
    endpoint: TokenEndpoint


@dataclass(frozen=True, slots=True)
class PersonBearer:
    """The tokens of one person at one tool server. `grant`: None for a person who has not signed in.

    Each new sign-in makes another grant, so `key` distinguishes the sessions of different accounts.
    """

    server: UUID
    name: str
    grant: UUID | None = None

    @property
    def key(self) -> str:
        return str(self.grant or "")

    async def token(self, refused: str = "") -> str:
        """Return a token that may work. `refused`: a token that the server has just refused.

        Raises `SignInRequired` and `SignInUnavailable`.
        """
        if self.grant is None:
            raise SignInRequired(Sentence(NOT_SIGNED_IN, name=self.name))
        try:
            async with asyncio.timeout(REFRESH_TIMEOUT):
                while True:
                    state = await on_database(_take_token_or_claim, self.grant, self.name, refused)
                    if isinstance(state, str):
                        return state
                    if state is None:
                        await asyncio.sleep(POLL_SECONDS)
                    else:
                        await asyncio.shield(_start_refresh(self.grant, self.name, state))
        except TimeoutError as error:
            reason = Sentence("The sign-in server does not answer.")
            raise SignInUnavailable(Sentence(UNAVAILABLE, name=self.name, why=reason)) from error

    async def refuse(self, token: str) -> SignInRequired:
        """Mark the grant as ended, since the server refuses a fresh token. Return the error for the person."""
        if self.grant is not None:
            await on_database(_mark_ended, self.grant, token, ToolGrant.End.REVOKED)
        return SignInRequired(Sentence(ENDED, name=self.name))

    async def note_missing_scope(self, scope: str) -> SignInRequired:
        """Store the scope that the server demands in addition. Return the error for the person."""
        if self.grant is not None:
            await on_database(_store_missing_scope, self.grant, scope)
        return SignInRequired(Sentence(SCOPE_MISSING, name=self.name))


class BearerAuth(httpx2.Auth):
    """Authentication with the token of a person. A refused token is renewed once per request."""

    def __init__(self, bearer: PersonBearer) -> None:
        self._bearer = bearer

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the request with the token. Raises `SignInRequired` and `SignInUnavailable`."""
        token = await self._bearer.token()
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == 401:
            token = await self._bearer.token(refused=token)
            request.headers["Authorization"] = f"Bearer {token}"
            response = yield request
            if response.status_code == 401:
                raise await self._bearer.refuse(token)
        if response.status_code == 403:
            protocol = await _load_protocol()
            scope = protocol.missing_scope(response)
            if scope is not None:
                raise await self._bearer.note_missing_scope(scope)


def sign_in_target(row: ToolServer) -> SignInTarget:
    """Return the sign-in of a tool server, as its administrator describes it."""
    return SignInTarget(
        row.name,
        row.base_url,
        sse=row.kind == ToolServer.Kind.SSE,
        issuer=row.issuer,
        scope=row.scope,
        client_id=row.client_id,
    )


def token_endpoint(row: ToolGrant) -> TokenEndpoint:
    """Return the endpoint and the client for requests about the tokens of a grant."""
    return TokenEndpoint(
        row.token_endpoint,
        row.client_id,
        row.client_secret,
        row.auth_method,
        row.resource,
        sign_in_target(row.tool_server).named_hosts,
    )


def expiry_time(tokens: Tokens) -> datetime | None:
    """Return the time at which the tokens expire, or None if the server does not name it."""
    if tokens.expires_in is None:
        return None
    return timezone.now() + timedelta(seconds=min(max(tokens.expires_in, 0), MAX_LIFETIME))


def sign_in_problem(bearer: PersonBearer) -> Sentence | None:
    """Return the reason why the person has to sign in, by the rows; None if there is none."""
    if bearer.grant is None:
        return Sentence(NOT_SIGNED_IN, name=bearer.name)
    row = ToolGrant.objects.select_related("tool_server", "user").filter(pk=bearer.grant).first()
    return _sign_in_problem(row, bearer.name)


def _sign_in_problem(row: ToolGrant | None, name: str) -> Sentence | None:
    if row is None or not row.user.is_active or not matches_server(row):
        return Sentence(NOT_SIGNED_IN, name=name)
    if row.lost:
        return Sentence(LOST, name=name)
    return Sentence(ENDED, name=name) if row.ended else None


def _take_token_or_claim(pk: UUID, name: str, refused: str) -> str | _Refresh | None:
    """Return a token that may work, the refresh that this process has claimed, or None while another process refreshes.

    Raises `SignInRequired`.
    """
    row = ToolGrant.objects.select_related("tool_server", "user").filter(pk=pk).first()
    problem = _sign_in_problem(row, name)
    if row is None or problem is not None:
        raise SignInRequired(problem or Sentence(NOT_SIGNED_IN, name=name))
    now = timezone.now()
    expired = row.expires is not None and row.expires <= now + EXPIRY_MARGIN
    if not expired and row.access_token != refused:
        if row.last_used is None or row.last_used < now - LAST_USED_PRECISION:
            ToolGrant.objects.filter(pk=pk).update(last_used=now)
        return row.access_token
    if not row.refresh_token:
        _mark_ended(pk, row.access_token, ToolGrant.End.EXPIRED if expired else ToolGrant.End.REVOKED)
        raise SignInRequired(Sentence(ENDED, name=name))
    free = Q(refreshing=None) | Q(refreshing__lt=now - CLAIM_TIME)
    if not ToolGrant.objects.filter(free, pk=pk, version=row.version).update(refreshing=now):
        return None
    return _Refresh(row.version, row.refresh_token, token_endpoint(row))


def matches_server(row: ToolGrant) -> bool:
    """Return whether the tokens belong to the current address of the tool server. Others are never sent."""
    server = row.tool_server
    return server.enabled and server.access == ToolServer.Access.PERSON and server.base_url == row.address


def _start_refresh(pk: UUID, name: str, refresh: _Refresh) -> "asyncio.Task[None]":
    task = asyncio.create_task(_refresh_and_store(pk, name, refresh))
    _refreshes.add(task)
    task.add_done_callback(_discard_task)
    return task


def _discard_task(task: "asyncio.Task[None]") -> None:
    _refreshes.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log the failure of a turn that was stopped


async def _refresh_and_store(pk: UUID, name: str, refresh: _Refresh) -> None:
    """Refresh the tokens and store them. Raises `SignInRequired` and `SignInUnavailable`."""
    protocol = await _load_protocol()
    try:
        tokens: Tokens = await protocol.refresh_tokens(refresh.endpoint, refresh_token=refresh.refresh_token)
    except GrantRefused as error:
        logger.info("the grant %s was refused: %s", pk, error.code)
        await on_database(_mark_revoked, pk, refresh.version)
        raise SignInRequired(Sentence(ENDED, name=name)) from error
    except SignInUnavailable as error:
        await on_database(_release_claim, pk, refresh.version)
        raise SignInUnavailable(Sentence(UNAVAILABLE, name=name, why=error.sentence)) from error
    await on_database(_store_tokens, pk, refresh, tokens)


def _store_tokens(pk: UUID, refresh: _Refresh, tokens: Tokens) -> None:
    """Store refreshed tokens. A server that does not rotate sends no new refresh token (RFC 6749, section 6)."""
    changes = {
        "access_token": tokens.access_token,
        "refresh_token": tokens.refresh_token or refresh.refresh_token,
        "expires": expiry_time(tokens),
        "version": refresh.version + 1,
        "refreshing": None,
        **({"scope": tokens.scope} if tokens.scope else {}),
    }
    ToolGrant.objects.filter(pk=pk, version=refresh.version).update(**changes)


def _mark_revoked(pk: UUID, version: int) -> None:
    ToolGrant.objects.filter(pk=pk, version=version).update(ended=ToolGrant.End.REVOKED, refreshing=None)


def _release_claim(pk: UUID, version: int) -> None:
    ToolGrant.objects.filter(pk=pk, version=version).update(refreshing=None)


def _mark_ended(pk: UUID, token: str, reason: ToolGrant.End) -> None:
    """Mark the grant as ended, unless it already has another token."""
    row = ToolGrant.objects.filter(pk=pk).first()
    if row is not None and row.access_token == token:
        ToolGrant.objects.filter(pk=pk, version=row.version).update(ended=reason)


def _store_missing_scope(pk: UUID, scope: str) -> None:
    ToolGrant.objects.filter(pk=pk).update(missing_scope=scope[:MAX_ADDRESS])


async def _load_protocol() -> ModuleType:
    """Import the protocol in a thread at its first use: its package takes half a second to load."""
    return await asyncio.to_thread(import_module, "llm.oauth.protocol")
