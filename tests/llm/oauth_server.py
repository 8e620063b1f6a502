"""An MCP server with OAuth, made of the protocol package's own server and authorization server, over loopback HTTP.

`AccountServer` plays the people at the sign-in page, too: whoever opens the authorization address is `person`.
"""

import json
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import httpx2
import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    RegistrationError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

SCOPE = "notes"


@dataclass
class AccountServer(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The authorization server. Refresh tokens rotate, and the second use of one ends its whole grant.

    `calls`: the person and the token of each call of `whoami`. `asked_for`: the authorization requests. `refreshes`
    counts rotations.
    """

    person: str = "alice"
    lifetime: int = 3_600
    registers: bool = True
    names_issuer: bool = False
    denies: bool = False
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    access: dict[str, AccessToken] = field(default_factory=dict)
    refresh: dict[str, RefreshToken] = field(default_factory=dict)
    spent: dict[str, str] = field(default_factory=dict)  # the person of a refresh token that was used
    calls: list[tuple[str, str]] = field(default_factory=list)
    asked_for: list[AuthorizationParams] = field(default_factory=list)
    refreshes: int = 0
    refreshed: threading.Event = field(default_factory=threading.Event)
    revocations: int = 0
    issuer: str = ""

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        if not self.registers:
            raise RegistrationError("invalid_client_metadata", "Only partners may register.")
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.asked_for.append(params)
        iss = self.issuer if self.names_issuer else None
        if self.denies:
            return construct_redirect_uri(
                str(params.redirect_uri), error="access_denied", error_description="You said no.", state=params.state
            )
        code = AuthorizationCode(
            code=secrets.token_urlsafe(24),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject=self.person,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state, iss=iss)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        subject = authorization_code.subject or ""
        return self._tokens(client, subject, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        if refresh_token in self.spent:
            self.end(self.spent[refresh_token])
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.refreshes += 1
        self.refreshed.set()
        subject = refresh_token.subject or ""
        self.spent[refresh_token.token] = subject
        del self.refresh[refresh_token.token]
        return self._tokens(client, subject, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.revocations += 1
        self.end(token.subject or "")

    def end(self, person: str) -> None:
        """End all tokens of a person, as an administrator of the server does."""
        self.access = {text: row for text, row in self.access.items() if row.subject != person}
        self.refresh = {text: row for text, row in self.refresh.items() if row.subject != person}

    def end_access(self, person: str) -> None:
        """End the access tokens of a person. Their refresh tokens go on."""
        self.access = {text: row for text, row in self.access.items() if row.subject != person}

    def _tokens(
        self, client: OAuthClientInformationFull, subject: str, scopes: list[str], resource: str | None
    ) -> OAuthToken:
        access, refresh = (f"{kind}-{subject}-{secrets.token_hex(12)}" for kind in ("access", "refresh"))
        self.access[access] = AccessToken(
            token=access,
            client_id=client.client_id,
            scopes=scopes,
            expires_at=int(time.time()) + self.lifetime,
            resource=resource,
            subject=subject,
        )
        self.refresh[refresh] = RefreshToken(
            token=refresh, client_id=client.client_id, scopes=scopes, resource=resource, subject=subject
        )
        return OAuthToken(access_token=access, expires_in=self.lifetime, refresh_token=refresh, scope=" ".join(scopes))


@dataclass
class OAuthServer:
    """The running server. `url`: of its tools. `changes`: members of its metadata to replace; None removes one."""

    url: str
    accounts: AccountServer
    changes: dict[str, Any]

    def authorize(self, address: str) -> httpx2.URL:
        """Open an authorization address as a browser does. Returns where the server sends the browser."""
        answer = httpx2.get(address)
        assert answer.status_code == 302, answer.text
        return httpx2.URL(answer.headers["location"])


class _Changed:
    """Answers with changed metadata. `resource` is of the tool server, all other members are of the sign-in server."""

    def __init__(self, app: ASGIApp, changes: Mapping[str, Any]) -> None:
        self._app = app
        self._changes = changes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        of_resource = "/oauth-protected-resource" in path
        changes = {name: value for name, value in self._changes.items() if (name == "resource") == of_resource}
        if not changes or not (of_resource or path.endswith("/oauth-authorization-server")):
            await self._app(scope, receive, send)
            return
        start: Message = {}

        async def replace(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            document = {**json.loads(message["body"]), **changes}
            body = json.dumps({name: value for name, value in document.items() if value is not None}).encode()
            headers = [pair for pair in start["headers"] if pair[0] != b"content-length"]
            await send({**start, "headers": [*headers, (b"content-length", str(len(body)).encode())]})
            await send({**message, "body": body})

        await self._app(scope, receive, replace)


@contextmanager
def serving(*, registration: bool = True, json_response: bool = False) -> Iterator[OAuthServer]:
    """Run a server with OAuth. `registration`: clients may register themselves."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # who comes before the server has started waits
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
        accounts = AccountServer(issuer=origin)
        server: MCPServer = MCPServer(
            "accounts",
            auth_server_provider=accounts,
            auth=AuthSettings.model_validate(
                {
                    "issuer_url": origin,
                    "resource_server_url": f"{origin}/mcp",
                    "client_registration_options": ClientRegistrationOptions(
                        enabled=registration, valid_scopes=[SCOPE, "more"], default_scopes=[SCOPE]
                    ),
                    "revocation_options": RevocationOptions(enabled=True),
                    "required_scopes": [SCOPE],
                    "validate_token_resource": True,
                }
            ),
        )

        @server.tool(description="Names the person who is signed in.")
        def whoami() -> str:
            token = get_access_token()
            assert token is not None
            accounts.calls.append((token.subject or "", token.token))
            return token.subject or ""

        changes: dict[str, Any] = {}
        app = _Changed(server.streamable_http_app(json_response=json_response), changes)
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield OAuthServer(f"{origin}/mcp", accounts, changes)
        running.should_exit = True
        thread.join(10)
