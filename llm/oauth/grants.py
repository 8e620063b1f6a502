"""Begin and complete the sign-in of a person at a tool server, list the grants of people, and end them.

1. `begin` finds the authorization server, makes the workspace a client there if necessary, stores a `ToolSignIn`, and
   returns the address for the browser of the person.
2. The server sends the browser back. `complete` takes the stored sign-in by its state, which works only once. It trades
   the code for tokens, and stores a `ToolGrant` in place of an earlier one.
3. `llm.oauth.bearer` uses and renews the tokens.
4. `disconnect` deletes the grant and asks the server to end its tokens.

No transaction is open during a request to a server.
"""

import asyncio
import hashlib
import logging
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from types import ModuleType
from uuid import UUID

from authlib.common.security import generate_token
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from django.contrib.auth.models import AbstractUser
from django.db import transaction
from django.utils import timezone

from core.api.rate_limit import count_in_window
from core.audit.services import record
from core.crypto import KEY_LOST, is_lost
from core.errors import ProductError
from core.outside import wait_outside
from core.sentences import Sentence
from core.text import clean
from llm.models import ToolClient, ToolGrant, ToolServer, ToolSignIn
from llm.models.tool_sign_in import MAX_ADDRESS
from llm.oauth.bearer import PersonBearer, expiry_time, matches_server, sign_in_target, token_endpoint
from llm.oauth.errors import GrantRefused, SignInUnavailable, sign_in_error
from llm.oauth.values import (
    BY_HAND,
    DOCUMENT,
    REGISTERED,
    OAuthClient,
    SignInDiscovery,
    SignInTarget,
    StoredDiscovery,
    TokenEndpoint,
)

SIGN_IN_LIFETIME = timedelta(minutes=10)  # from the beginning of a sign-in to the return of the browser
MAX_PENDING = 5  # begun sign-ins of a person
MAX_STARTS = 20  # sign-ins that a person may begin within `START_WINDOW_SECONDS`
START_WINDOW_SECONDS = 60
REVOKE_TIMEOUT = 15.0  # seconds, for all tokens of a grant

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AuthorizationAnswer:
    """The parameters with which an authorization server sent the browser back."""

    state: str
    code: str = ""
    iss: str | None = None
    error: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class StartedSignIn:
    """A begun sign-in. `address`: the page to open in the browser. `scope`: the permissions that it asks for."""

    address: str
    scope: str


@dataclass(frozen=True, slots=True)
class CompletedSignIn:
    """A completed sign-in. `then`: the page to open."""

    grant: ToolGrant
    then: str


@dataclass(frozen=True, slots=True)
class PersonsGrants:
    """The grants of one person, by tool server."""

    grants: dict[UUID, ToolGrant]

    def usable(self, row: ToolServer) -> ToolGrant | None:
        """Return the grant for the current address of the tool server, if its tokens may still work."""
        grant = self.grants.get(row.pk)
        return grant if grant is not None and grant.usable and matches_server(grant) else None

    def bearer(self, row: ToolServer) -> PersonBearer:
        grant = self.grants.get(row.pk)
        return PersonBearer(row.pk, row.name, grant.pk if grant is not None else None)


NO_GRANTS = PersonsGrants({})


def load_grants(person: UUID | None) -> PersonsGrants:
    """Return the grants of a person; none for None."""
    rows = ToolGrant.objects.filter(user_id=person).select_related("tool_server") if person is not None else ()
    return PersonsGrants({row.tool_server_id: row for row in rows})


def discover(*, tool_server: ToolServer) -> SignInDiscovery:
    """Find the authorization server of a tool server, and store the discovery for administrators to read.

    Raises `tool_sign_in_unreachable`, `tool_sign_in_issuer` and `tool_sign_in_failed` (502).
    """
    protocol = _load_protocol()
    with wait_outside():
        discovery: SignInDiscovery = asyncio.run(protocol.discover(sign_in_target(tool_server)))
    tool_server.sign_in = _as_json(discovery)
    ToolServer.objects.filter(pk=tool_server.pk).update(sign_in=tool_server.sign_in)
    return discovery


def begin(
    *,
    user: AbstractUser,
    tool_server: ToolServer,
    redirect_uri: str,
    site: str,
    document: str = "",
    session: str = "",
    then: str = "",
) -> StartedSignIn:
    """Begin a sign-in.

    `redirect_uri`: the address to which the server sends the browser back. `document`: the address of the workspace's
    client document, if servers can read it. `session`: the key of the browser's session, which must complete the
    sign-in. `then`: the page to open afterwards. Raises `no_tool_sign_in` (409), `throttled` (429), `secret_lost`
    (409), and the errors of `discover` and of a refused registration (502).
    """
    _require_sign_in(tool_server)
    allowance = count_in_window(f"tool-sign-in:{user.pk}", MAX_STARTS, START_WINDOW_SECONDS)
    if allowance is not None and allowance.exceeded:
        sentence = Sentence("You have begun too many sign-ins. Try again in a minute.")
        raise ProductError("throttled", sentence, status=429, retry_after=START_WINDOW_SECONDS)
    discovery = discover(tool_server=tool_server)
    scope = _requested_scope(user, tool_server, discovery)
    client = _find_client(tool_server, discovery, redirect_uri=redirect_uri, site=site, document=document, scope=scope)
    state, verifier = secrets.token_urlsafe(32), generate_token(64)
    with transaction.atomic():
        pending = ToolSignIn.objects.visible_to(user).order_by("-created")
        pending.filter(created__lt=timezone.now() - SIGN_IN_LIFETIME).delete()
        ToolSignIn.objects.filter(pk__in=[row.pk for row in pending[MAX_PENDING - 1 :]]).delete()
        ToolSignIn.objects.create(
            user_id=user.pk,
            tool_server=tool_server,
            address=tool_server.base_url,
            issuer=discovery.issuer,
            token_endpoint=discovery.token_endpoint,
            revocation_endpoint=discovery.revocation_endpoint,
            resource=discovery.resource,
            scope=scope,
            client_id=client.client_id,
            client_secret=client.client_secret,
            auth_method=client.auth_method,
            state=_digest(state),
            session=_digest(session) if session else "",
            verifier=verifier,
            redirect_uri=redirect_uri,
            then=then[:MAX_ADDRESS],
            iss_required=discovery.iss_required,
        )
    address = _load_protocol().authorization_url(
        discovery,
        client,
        redirect_uri=redirect_uri,
        state=state,
        challenge=create_s256_code_challenge(verifier),
        scope=scope,
    )
    return StartedSignIn(address, scope)


def complete(*, user: AbstractUser, answer: AuthorizationAnswer, session: str = "") -> CompletedSignIn:
    """Complete the sign-in to which the answer belongs. `session`: the key of the browser's session.

    Raises `tool_sign_in_state` (403) for an answer that belongs to no sign-in of this person and browser,
    `no_tool_sign_in` (409), `tool_sign_in_issuer` (403), `tool_sign_in_refused` (403) and `tool_sign_in_unreachable`
    (502).
    """
    sign_in = _take_sign_in(user, answer.state, session)
    tool_server = sign_in.tool_server
    name = tool_server.name
    _require_sign_in(tool_server)
    if sign_in.address != tool_server.base_url:
        raise _stale_error()
    protocol = _load_protocol()
    if not protocol.issuer_matches(answer.iss, issuer=sign_in.issuer, required=sign_in.iss_required):
        sentence = Sentence("This answer does not come from the sign-in server of {name}. Start again.", name=name)
        raise sign_in_error(sentence, code="tool_sign_in_issuer", status=403)
    if not answer.code:
        raise _refused_error(name, answer.error, answer.description)
    endpoint = TokenEndpoint(
        sign_in.token_endpoint,
        sign_in.client_id,
        sign_in.client_secret,
        sign_in.auth_method,
        sign_in.resource,
        sign_in_target(tool_server).named_hosts,
    )
    try:
        with wait_outside():
            tokens = asyncio.run(
                protocol.exchange_code(
                    endpoint, code=answer.code, verifier=sign_in.verifier, redirect_uri=sign_in.redirect_uri
                )
            )
    except GrantRefused as error:
        if error.code in ("invalid_client", "unauthorized_client"):
            # The server does not know the client any more. The next sign-in registers it again.
            ToolClient.objects.filter(tool_server=tool_server, client_id=sign_in.client_id).delete()
        raise _refused_error(name, error.code, error.description) from error
    except SignInUnavailable as error:
        sentence = Sentence("{why} You are not signed in to {name}. Start again.", why=error.sentence, name=name)
        raise sign_in_error(sentence, code="tool_sign_in_unreachable") from error
    with transaction.atomic():
        ToolGrant.objects.visible_to(user).filter(tool_server=tool_server).delete()
        grant = ToolGrant.objects.create(
            user_id=user.pk,
            tool_server=tool_server,
            address=sign_in.address,
            issuer=sign_in.issuer,
            token_endpoint=sign_in.token_endpoint,
            revocation_endpoint=sign_in.revocation_endpoint,
            resource=sign_in.resource,
            scope=tokens.scope or sign_in.scope,
            client_id=sign_in.client_id,
            client_secret=sign_in.client_secret,
            auth_method=sign_in.auth_method,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token,
            expires=expiry_time(tokens),
        )
        record(user=user, action="tool_grant.connected", row=grant, name=name)
    return CompletedSignIn(grant, sign_in.then)


def disconnect(*, user: AbstractUser, grant: ToolGrant) -> bool:
    """Delete a grant of the user. Return False if its tokens may still work, since the server did not revoke them."""
    with transaction.atomic():
        deleted, _ = ToolGrant.objects.visible_to(user).filter(pk=grant.pk).delete()
        ToolSignIn.objects.visible_to(user).filter(tool_server_id=grant.tool_server_id).delete()
        if deleted:
            record(user=user, action="tool_grant.disconnected", row=grant, name=grant.tool_server.name)
    if not (deleted and grant.usable):
        return True
    if not grant.revocation_endpoint:
        return False
    try:
        with wait_outside():
            asyncio.run(_revoke_tokens(grant))
    except (SignInUnavailable, TimeoutError) as error:
        logger.warning("the tokens of %s were not revoked: %s", grant.tool_server.name, error)
        return False
    return True


async def _revoke_tokens(grant: ToolGrant) -> None:
    """Revoke the refresh token, which revokes the tokens made from it, and the access token."""
    protocol = _load_protocol()
    endpoint = token_endpoint(grant)
    revocation_endpoint = TokenEndpoint(
        grant.revocation_endpoint,
        endpoint.client_id,
        endpoint.client_secret,
        endpoint.auth_method,
        endpoint.resource,
        endpoint.named_hosts,
    )
    async with asyncio.timeout(REVOKE_TIMEOUT):
        if grant.refresh_token:
            await protocol.revoke_token(revocation_endpoint, token=grant.refresh_token, hint="refresh_token")
        await protocol.revoke_token(revocation_endpoint, token=grant.access_token, hint="access_token")


def _take_sign_in(user: AbstractUser, state: str, session: str) -> ToolSignIn:
    """Delete the sign-in with this state, and return it. Raises `tool_sign_in_state` (403)."""
    row = ToolSignIn.objects.select_related("tool_server").filter(state=_digest(state)).first()
    # Of two requests with the same state, one deletes the row.
    if row is None or not ToolSignIn.objects.filter(pk=row.pk).delete()[0]:
        raise _stale_error()
    other_browser = bool(row.session) and row.session != _digest(session)
    if (
        row.user_id != user.pk
        or other_browser
        or row.created < timezone.now() - SIGN_IN_LIFETIME
        or is_lost(row.verifier)
    ):
        raise _stale_error()
    return row


def _stale_error() -> ProductError:
    sentence = Sentence(
        "This sign-in did not start in this browser, was completed already, or took too long. Start again under "
        "“Connected tools” in your settings."
    )
    return sign_in_error(sentence, code="tool_sign_in_state", status=403)


def _refused_error(name: str, code: str, description: str) -> ProductError:
    reason = clean(description or code or "?")[:200].rstrip(".")
    sentence = Sentence("{name} refused the sign-in: {reason}. Start again.", name=name, reason=reason)
    return sign_in_error(sentence, code="tool_sign_in_refused", status=403)


def _require_sign_in(tool_server: ToolServer) -> None:
    if not tool_server.enabled or tool_server.access != ToolServer.Access.PERSON:
        sentence = Sentence("People do not sign in to {name}.", name=tool_server.name)
        raise ProductError("no_tool_sign_in", sentence, status=409)


def _find_client(
    tool_server: ToolServer, discovery: SignInDiscovery, *, redirect_uri: str, site: str, document: str, scope: str
) -> OAuthClient:
    """Return the workspace as a client: the administrator's, the registered one, or the one of its document.

    A registration is preferred to the document: it works for a workspace in a private network, whose document the
    authorization server cannot read.
    """
    if tool_server.client_id:
        return _manual_client(tool_server, discovery)
    registered_client = ToolClient.objects.filter(
        tool_server=tool_server, issuer=discovery.issuer, redirect_uri=redirect_uri
    ).first()
    if registered_client is not None:
        is_expired = registered_client.secret_expires is not None and registered_client.secret_expires <= timezone.now()
        is_covered = {*scope.split()} <= {*registered_client.scope.split()}
        if is_covered and not is_expired and not is_lost(registered_client.client_secret):
            return OAuthClient(
                registered_client.client_id, registered_client.client_secret, registered_client.auth_method, REGISTERED
            )
        registered_client.delete()
    document_client = OAuthClient(document, "", "none", DOCUMENT) if document and discovery.documents else None
    if not discovery.registration_endpoint:
        if document_client is not None:
            return document_client
        raise sign_in_error(
            Sentence(
                "The sign-in server of {name} does not register clients automatically. An administrator must create a "
                "client there, with the redirect address {redirect_uri}, and enter its ID.",
                name=tool_server.name,
                redirect_uri=redirect_uri,
            ),
            code="tool_sign_in_registration",
        )
    try:
        return _register_client(tool_server, discovery, redirect_uri=redirect_uri, site=site, scope=scope)
    except ProductError:
        if document_client is None:
            raise
        return document_client


def _manual_client(tool_server: ToolServer, discovery: SignInDiscovery) -> OAuthClient:
    if is_lost(tool_server.api_key):
        raise ProductError("secret_lost", KEY_LOST, status=409)
    supports_form = "client_secret_post" in discovery.auth_methods
    method = "none" if not tool_server.api_key else "client_secret_post" if supports_form else "client_secret_basic"
    return OAuthClient(tool_server.client_id, tool_server.api_key, method, BY_HAND)


def _register_client(
    tool_server: ToolServer, discovery: SignInDiscovery, *, redirect_uri: str, site: str, scope: str
) -> OAuthClient:
    target: SignInTarget = sign_in_target(tool_server)
    with wait_outside():
        client: OAuthClient = asyncio.run(
            _load_protocol().register_client(target, discovery, redirect_uri=redirect_uri, site=site, scope=scope)
        )
    ToolClient.objects.update_or_create(
        tool_server=tool_server,
        issuer=discovery.issuer,
        redirect_uri=redirect_uri,
        defaults={
            "client_id": client.client_id,
            "client_secret": client.client_secret,
            "auth_method": client.auth_method,
            "scope": scope,
            "secret_expires": to_datetime(client.secret_expires),
        },
    )
    return client


def to_datetime(seconds: int) -> datetime | None:
    """Return the time for a Unix time; None for 0 and for a time beyond the calendar."""
    try:
        return datetime.fromtimestamp(seconds, tz=UTC) if seconds > 0 else None
    except (OverflowError, OSError, ValueError):
        return None


def _requested_scope(user: AbstractUser, tool_server: ToolServer, discovery: SignInDiscovery) -> str:
    """Return the scope to ask for: the server's, and the scope that it demanded for a refused call of this person."""
    grant = ToolGrant.objects.visible_to(user).filter(tool_server=tool_server).first()
    scopes = discovery.scope.split()
    if grant is not None and grant.missing_scope and matches_server(grant):
        scopes += [*grant.scope.split(), *grant.missing_scope.split()]
    return " ".join(dict.fromkeys(scopes))[:MAX_ADDRESS]


def _as_json(discovery: SignInDiscovery) -> StoredDiscovery:
    return {
        "at": timezone.now().isoformat(),
        "issuer": discovery.issuer,
        "authorization_endpoint": discovery.authorization_endpoint,
        "token_endpoint": discovery.token_endpoint,
        "registration_endpoint": discovery.registration_endpoint,
        "revocation_endpoint": discovery.revocation_endpoint,
        "resource": discovery.resource,
        "scope": discovery.scope,
        "documents": discovery.documents,
        "sources": list(discovery.sources),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _load_protocol() -> ModuleType:
    """Import the protocol at its first use: its package takes half a second to load."""
    return import_module("llm.oauth.protocol")
