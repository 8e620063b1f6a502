"""Speak OAuth 2.1 with a tool server and its authorization server, as the Model Context Protocol asks.

1. `discover` sends the tool server a request without a token. Its refusal, or a well-known address, leads to its
   metadata (RFC 9728). They lead to the metadata of the authorization server (RFC 8414, OpenID Connect Discovery).
2. `register_client` makes the workspace a client there (RFC 7591).
3. `authorization_url` returns the address for the person's browser, with PKCE (S256), a state and the resource (RFC
   8707).
4. `exchange_code` trades the code for tokens, `refresh_tokens` renews them, and `revoke_token` ends them (RFC 7009).

The documents are read with the classes of the package `mcp`. Its own flow is not used, since it waits in one process
for a browser, and stores the tokens of one person. Import this module only to sign in: loading the package takes half a
second.
"""

import base64
from collections.abc import Mapping
from urllib.parse import quote

import httpx2
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError
from mcp.client.auth.oauth2 import check_registration_usable
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_oauth_metadata_request,
    extract_field_from_www_auth,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    handle_auth_metadata_response,
    handle_protected_resource_response,
    handle_registration_response,
    validate_authorization_response_iss,
)
from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from mcp_types import LATEST_PROTOCOL_VERSION
from pydantic import ValidationError

from core.errors import ProductError
from core.json_types import JsonObject
from core.sentences import Sentence
from core.text import clean
from llm.models.tool_sign_in import MAX_ADDRESS
from llm.oauth.errors import GrantRefused, SignInUnavailable, sign_in_error
from llm.oauth.http import UNREACHABLE, send
from llm.oauth.values import (
    GRANTS,
    PRODUCT,
    REGISTERED,
    OAuthClient,
    SignInDiscovery,
    SignInTarget,
    TokenEndpoint,
    Tokens,
)

# In order of preference. Servers disagree on the encoding of a secret for HTTP Basic, but not for a form.
AUTH_METHODS = ("client_secret_post", "client_secret_basic", "none")
GOOGLE_ISSUER = "https://accounts.google.com"
MAX_TOKEN = 20_000  # characters
MAX_QUOTE = 300  # characters of a server's text in a sentence
_DENIED_STATUSES = (401, 403)
_TEMPORARY_ERRORS = ("temporarily_unavailable", "server_error", "slow_down")


async def discover(target: SignInTarget) -> SignInDiscovery:
    """Find the authorization server.

    Raises `tool_sign_in_unreachable`, `tool_sign_in_issuer` and `tool_sign_in_failed` (502).
    """
    challenge = await _fetch_challenge(target)
    sources: list[str] = []
    resource = await _fetch_resource_metadata(target, challenge, sources)
    if not target.issuer and resource is None:
        issuer = None
        expected = str(httpx2.URL(target.address).join("/")).rstrip("/")
    else:
        issuer = target.issuer or str(resource.authorization_servers[0] if resource is not None else "")
        expected = issuer
    metadata = await _fetch_server_metadata(target, issuer, expected, sources)
    methods = metadata.code_challenge_methods_supported
    # The protocol demands that clients refuse a server that does not list PKCE. Some servers list nothing, but support
    # it. An administrator who enters a client ID vouches for them.
    if "S256" not in (methods or ()) and (methods or not target.client_id):
        raise sign_in_error(
            Sentence(
                "The sign-in server of {name} does not list PKCE with S256, which protects codes. Ask its operator, or "
                "enter the ID of your own client there.",
                name=target.name,
            )
        )
    scope = target.scope or get_client_metadata_scopes(
        extract_scope_from_www_auth(challenge), resource, metadata, list(GRANTS)
    )
    discovery = SignInDiscovery(
        issuer=str(metadata.issuer),
        authorization_endpoint=str(metadata.authorization_endpoint),
        token_endpoint=str(metadata.token_endpoint),
        registration_endpoint=str(metadata.registration_endpoint or ""),
        revocation_endpoint=str(metadata.revocation_endpoint or ""),
        # Servers without metadata may refuse the parameter `resource`.
        resource=str(resource.resource) if resource is not None else "",
        scope=scope or "",
        auth_methods=tuple(metadata.token_endpoint_auth_methods_supported or ("client_secret_basic",)),
        documents=bool(metadata.client_id_metadata_document_supported),
        iss_required=bool(metadata.authorization_response_iss_parameter_supported),
        sources=tuple(sources),
    )
    _require_storable(target, discovery)
    return discovery


async def _fetch_challenge(target: SignInTarget) -> httpx2.Response:
    """Return the response of the tool server to a request without a token."""
    if target.sse:
        request = httpx2.Request("GET", target.address, headers={"Accept": "text/event-stream"})
    else:
        initialize: JsonObject = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": LATEST_PROTOCOL_VERSION,
                "capabilities": {},
                "clientInfo": {"name": PRODUCT, "version": "1"},
            },
        }
        accept = "application/json, text/event-stream"
        request = httpx2.Request("POST", target.address, json=initialize, headers={"Accept": accept})
    return await send(request, target.named_hosts, body=False)


async def _fetch_resource_metadata(
    target: SignInTarget, challenge: httpx2.Response, sources: list[str]
) -> ProtectedResourceMetadata | None:
    """Return the tool server's metadata, or None if it publishes none."""
    metadata_url = (
        extract_resource_metadata_from_www_auth(challenge) if challenge.status_code in _DENIED_STATUSES else None
    )
    for url in build_protected_resource_metadata_discovery_urls(metadata_url, target.address):
        response = await _fetch_metadata(target, url)
        if response.status_code >= 500 or response.status_code == 429:
            # A server that fails may still have metadata.
            raise _status_error(response)
        metadata = await handle_protected_resource_response(response)
        if metadata is not None:
            own_url = resource_url_from_server_url(target.address)
            if not check_resource_allowed(requested_resource=own_url, configured_resource=str(metadata.resource)):
                raise sign_in_error(
                    Sentence(
                        "The sign-in of {name} is for another address, {resource}. Correct the URL of the tool server, "
                        "or tell its operator.",
                        name=target.name,
                        resource=str(metadata.resource)[:MAX_QUOTE],
                    )
                )
            sources.append(url)
            return metadata
    return None


async def _fetch_server_metadata(
    target: SignInTarget, issuer: str | None, expected: str, sources: list[str]
) -> OAuthMetadata:
    for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, target.address):
        response = await _fetch_metadata(target, url)
        should_continue, metadata = await handle_auth_metadata_response(response)
        if not should_continue:
            raise _status_error(response)
        if metadata is None:
            continue
        # The issuers of Google and others differ from those in the documents of their tool servers by a slash at the
        # end. Both spellings lead to the same metadata (RFC 8414, section 3.1), so they name the same server.
        if str(metadata.issuer).rstrip("/") != expected.rstrip("/"):
            raise sign_in_error(
                Sentence(
                    "The sign-in server of {name} calls itself “{issuer}”, not “{expected}”. A sign-in there would not "
                    "be safe. Tell an administrator.",
                    name=target.name,
                    issuer=str(metadata.issuer)[:MAX_QUOTE],
                    expected=expected[:MAX_QUOTE],
                ),
                code="tool_sign_in_issuer",
            )
        sources.append(url)
        return metadata
    raise sign_in_error(
        Sentence(
            "{name} does not name its sign-in server. Check its URL, or enter the issuer of its sign-in server.",
            name=target.name,
        )
    )


async def _fetch_metadata(target: SignInTarget, url: str) -> httpx2.Response:
    try:
        request = create_oauth_metadata_request(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise sign_in_error(
            Sentence("{name} names an invalid address: {url}.", name=target.name, url=clean(url)[:MAX_QUOTE])
        ) from error
    return await send(request, target.named_hosts)


def _require_storable(target: SignInTarget, discovery: SignInDiscovery) -> None:
    """Raise `tool_sign_in_failed` for texts that are too long to store, and for a sign-in page without encryption."""
    texts = (
        discovery.issuer,
        discovery.authorization_endpoint,
        discovery.token_endpoint,
        discovery.registration_endpoint,
        discovery.revocation_endpoint,
        discovery.resource,
        discovery.scope,
    )
    if any(len(text) > MAX_ADDRESS for text in texts):
        raise sign_in_error(
            Sentence("The description of the sign-in of {name} is too long. Tell its operator.", name=target.name)
        )
    page = httpx2.URL(discovery.authorization_endpoint)
    if page.scheme != "https" and page.host not in target.named_hosts:
        raise sign_in_error(
            Sentence(
                "The page on which people sign in to {name} must begin with https://: {url}.",
                name=target.name,
                url=discovery.authorization_endpoint[:MAX_QUOTE],
            )
        )


async def register_client(
    target: SignInTarget, discovery: SignInDiscovery, *, redirect_uri: str, site: str, scope: str
) -> OAuthClient:
    """Register the workspace as a client. `scope`: the permissions that it will ask for.

    Raises `tool_sign_in_registration` if the server refuses it, `tool_sign_in_unreachable` and `tool_sign_in_failed`
    (502).
    """
    methods = [method for method in AUTH_METHODS if method in discovery.auth_methods]
    if not methods:
        raise sign_in_error(
            Sentence(
                "The sign-in server of {name} requires the client authentication {methods}, which is not supported.",
                name=target.name,
                methods=", ".join(discovery.auth_methods)[:MAX_QUOTE],
            )
        )
    metadata = client_metadata(redirect_uri=redirect_uri, site=site, auth_method=methods[0], scope=scope)
    body = metadata.model_dump(by_alias=True, mode="json", exclude_none=True)
    request = httpx2.Request("POST", discovery.registration_endpoint, json=body)
    response = await send(request, target.named_hosts)
    try:
        client = await handle_registration_response(response)
        check_registration_usable(client)
    except OAuthRegistrationError as error:
        raise _registration_error(target, response) from error
    if len(client.client_id) > MAX_ADDRESS or len(client.client_secret or "") > MAX_TOKEN:
        raise _registration_error(target, response)
    return OAuthClient(
        client.client_id,
        client.client_secret or "",
        client.token_endpoint_auth_method or methods[0],
        REGISTERED,
        client.client_secret_expires_at or 0,
    )


def client_metadata(*, redirect_uri: str, site: str, auth_method: str, scope: str = "") -> OAuthClientMetadata:
    """Return the description of the workspace as a client. `site`: the origin of this site."""
    local = httpx2.URL(redirect_uri).host in ("127.0.0.1", "localhost", "::1")
    return OAuthClientMetadata.model_validate(
        {
            "client_name": PRODUCT,
            "client_uri": site,
            "redirect_uris": [redirect_uri],
            "grant_types": list(GRANTS),
            "response_types": ["code"],
            "token_endpoint_auth_method": auth_method,
            "application_type": "native" if local else "web",
            "scope": scope or None,
        }
    )


def authorization_url(
    discovery: SignInDiscovery, client: OAuthClient, *, redirect_uri: str, state: str, challenge: str, scope: str
) -> str:
    """Return the address of the page on which the person signs in. `challenge`: the challenge of PKCE."""
    parameters = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    if discovery.resource:
        parameters["resource"] = discovery.resource
    if discovery.issuer.rstrip("/") == GOOGLE_ISSUER:
        # Google sends refresh tokens for these parameters, not for the scope `offline_access`.
        parameters |= {"access_type": "offline", "prompt": "consent"}
    if scope:
        parameters["scope"] = scope
        if "offline_access" in scope.split():
            parameters["prompt"] = "consent"  # required by OpenID Connect Core, section 11
    return str(httpx2.URL(discovery.authorization_endpoint).copy_merge_params(parameters))


def issuer_matches(iss: str | None, *, issuer: str, required: bool) -> bool:
    """Return whether the answer to an authorization request comes from the issuer (RFC 9207)."""
    metadata = OAuthMetadata.model_validate(
        {
            "issuer": issuer,
            "authorization_endpoint": issuer,
            "token_endpoint": issuer,
            "authorization_response_iss_parameter_supported": required,
        }
    )
    try:
        validate_authorization_response_iss(iss, metadata)
    except OAuthFlowError:
        return False
    return True


async def exchange_code(endpoint: TokenEndpoint, *, code: str, verifier: str, redirect_uri: str) -> Tokens:
    """Return the tokens for a code. Raises `GrantRefused` and `SignInUnavailable`."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": verifier,
    }
    return await _request_tokens(endpoint, form)


async def refresh_tokens(endpoint: TokenEndpoint, *, refresh_token: str) -> Tokens:
    """Return new tokens for a refresh token. Raises `GrantRefused` and `SignInUnavailable`."""
    return await _request_tokens(endpoint, {"grant_type": "refresh_token", "refresh_token": refresh_token})


def missing_scope(response: httpx2.Response) -> str | None:
    """Return the scope that a tool server demands for a refused call, empty if it is not named.

    None for other responses.
    """
    if extract_field_from_www_auth(response, "error") != "insufficient_scope":
        return None
    return clean(extract_scope_from_www_auth(response) or "")


async def revoke_token(endpoint: TokenEndpoint, *, token: str, hint: str) -> None:
    """Revoke a token (RFC 7009). `hint`: the kind of the token. Raises `SignInUnavailable`."""
    response = await _post_form(endpoint, {"token": token, "token_type_hint": hint})
    if response.status_code != 200:
        raise SignInUnavailable(_status_sentence(response))


async def _request_tokens(endpoint: TokenEndpoint, form: Mapping[str, str]) -> Tokens:
    response = await _post_form(endpoint, {**form, **({"resource": endpoint.resource} if endpoint.resource else {})})
    host = response.request.url.host
    code, description = _read_error(response)
    # Some servers refuse with status 200.
    if code and code not in _TEMPORARY_ERRORS and response.status_code < 500 and response.status_code != 429:
        raise GrantRefused(code, description)
    if response.status_code not in (200, 201):
        raise SignInUnavailable(_status_sentence(response))
    try:
        token = OAuthToken.model_validate_json(response.content)
    except ValidationError as error:
        raise SignInUnavailable(Sentence("{host} sent an unreadable answer.", host=host)) from error
    refresh_token, scope = token.refresh_token or "", token.scope or ""
    if max(len(token.access_token), len(refresh_token)) > MAX_TOKEN or len(scope) > MAX_ADDRESS:
        raise SignInUnavailable(Sentence("{host} sent an answer that is too large.", host=host))
    if not (token.access_token.isascii() and token.access_token.isprintable()):
        raise SignInUnavailable(Sentence("{host} sent a token with characters that no header can hold.", host=host))
    return Tokens(token.access_token, refresh_token, token.expires_in, scope)


async def _post_form(endpoint: TokenEndpoint, form: Mapping[str, str]) -> httpx2.Response:
    """Send a form to a token endpoint, with the client's authentication (RFC 6749, section 2.3.1)."""
    fields = {**form, "client_id": endpoint.client_id}
    headers = {"Accept": "application/json"}
    if endpoint.client_secret and endpoint.auth_method == "client_secret_post":
        fields["client_secret"] = endpoint.client_secret
    elif endpoint.client_secret and endpoint.auth_method == "client_secret_basic":
        pair = f"{quote(endpoint.client_id, safe='')}:{quote(endpoint.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    try:
        return await send(httpx2.Request("POST", endpoint.url, data=fields, headers=headers), endpoint.named_hosts)
    except ProductError as error:
        raise SignInUnavailable(error.sentence) from error


def _read_error(response: httpx2.Response) -> tuple[str, str]:
    """Return the error code and description of a response, or empty texts."""
    try:
        body = response.json()
    except ValueError:
        return "", ""
    if not isinstance(body, dict) or not isinstance(body.get("error"), str):
        return "", ""
    description = body.get("error_description")
    return clean(body["error"])[:100], clean(description if isinstance(description, str) else "")[:MAX_QUOTE]


def _registration_error(target: SignInTarget, response: httpx2.Response) -> ProductError:
    code, description = _read_error(response)
    sentence = Sentence(
        "The sign-in server of {name} does not register this workspace as a client: {reason}. An administrator can "
        "create a client there by hand, and enter its ID.",
        name=target.name,
        reason=(description or code or str(response.status_code)).rstrip("."),
    )
    return sign_in_error(sentence, code="tool_sign_in_registration")


def _status_sentence(response: httpx2.Response) -> Sentence:
    return Sentence(
        "{host} answered with status {status}.", host=response.request.url.host, status=response.status_code
    )


def _status_error(response: httpx2.Response) -> ProductError:
    sentence = Sentence("{why} Try again, or tell an administrator.", why=_status_sentence(response))
    return sign_in_error(sentence, code=UNREACHABLE)
