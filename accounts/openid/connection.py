"""Send requests to an OpenID provider: for its discovery document, its keys, a token, and claims about a person.

Requests that need the document or the keys at the same time share one read (`accounts.openid.shared`). After a timeout,
the provider gets no request for some seconds. No connection to the database is held during a request.

An administrator has named the issuer's own host, so it may be in a private network. All other hosts of its document
must be on the public internet. Only requests within a private network may use http. Redirects are not followed.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from typing import Any

import httpx2
from asgiref.sync import async_to_sync
from authlib.integrations.base_client.errors import OAuthError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.discovery import get_well_known_url
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from requests import PreparedRequest, ReadTimeout, RequestException, Response, Timeout
from requests.adapters import HTTPAdapter
from requests.exceptions import ChunkedEncodingError
from urllib3.exceptions import HTTPError, ReadTimeoutError

from accounts.models import OpenIDProvider
from accounts.openid.shared import Outages, SharedDocuments, WaitTooLong
from core.api.rate_limit import count_in_window
from core.crypto import KEY_LOST, is_lost
from core.errors import ProductError
from core.json_types import JsonObject
from core.net.fetch import system_tls
from core.net.url_safety import FetchRefused, Guard, is_public
from core.outside import wait_outside
from core.sentences import Sentence

TIMEOUT = 10.0  # seconds without a byte
BODY_SECONDS = 10.0  # for the whole body of an answer
RETRY_SECONDS = 15.0  # until the next request to a provider that did not answer in time
MAX_SIZE = 1_000_000  # bytes of an answer
CACHE_SECONDS = 600.0  # for which the document and the keys are cached
MAX_KEY_REFRESHES = 30  # per provider and minute, for tokens that no cached key has signed
SCOPE = "openid profile email"
UNREADABLE = Sentence("The provider's answer cannot be read.")
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_EVERYWHERE = (ip_network("0.0.0.0/0"), ip_network("::/0"))
_documents = SharedDocuments(kept_seconds=CACHE_SECONDS, waiting_seconds=2 * (TIMEOUT + BODY_SECONDS))
_outages = Outages(seconds=RETRY_SECONDS)


class CheckedAdapter(HTTPAdapter):
    """Connects to exactly the address that was checked, as `core.net.fetch.CheckedTransport` does."""

    def __init__(self, issuer: str) -> None:
        super().__init__()
        self._issuer = httpx2.URL(issuer)

    def get_connection_with_tls_context(
        self, request: PreparedRequest, verify: Any, proxies: Any = None, cert: Any = None
    ) -> Any:
        url = httpx2.URL(request.url or "")
        is_issuer = url.host == self._issuer.host
        guard = Guard(ports=frozenset(range(1, 65_536)), allowed_networks=_EVERYWHERE) if is_issuer else Guard()
        address = async_to_sync(guard.addresses_of)(url)[0]
        if url.scheme == "http" and is_public(ip_address(address)):
            raise FetchRefused(
                Sentence("{host} is on the public internet, so its address must begin with https://.", host=url.host)
            )
        secure = url.scheme == "https"
        tls = {"ssl_context": system_tls(), "server_hostname": url.host, "assert_hostname": url.host} if secure else {}
        port = url.port or (443 if secure else 80)
        return self.poolmanager.connection_from_host(address, port, url.scheme, pool_kwargs=tls)

    def cert_verify(self, *arguments: Any) -> None:
        """Do nothing: the TLS context of the connection already trusts the machine's certificate authorities."""

    def send(self, request: PreparedRequest, *arguments: Any, **options: Any) -> Response:
        request.headers["Host"] = httpx2.URL(request.url or "").netloc.decode("ascii")
        answer = super().send(request, *arguments, **{**options, "stream": True})
        try:
            answer._content = self._body(answer.raw)  # the attribute in which `requests` stores the body
        except ReadTimeoutError as error:
            raise ReadTimeout(error) from error
        except HTTPError as error:
            raise ChunkedEncodingError(error) from error
        return answer

    def _body(self, raw: Any) -> bytes:
        """Return the body. Raises `FetchRefused` for a large one, and `ReadTimeout` for a slow one."""
        body = bytearray()
        end = time.monotonic() + BODY_SECONDS
        while piece := raw.read1(MAX_SIZE, decode_content=True):
            body += piece
            if len(body) > MAX_SIZE:
                raise FetchRefused(Sentence("{host} sent an answer that is too large.", host=self._issuer.host))
            if time.monotonic() > end:
                raise ReadTimeout("the body took too long")
        return bytes(body)


def session(
    provider: OpenIDProvider,
    *,
    redirect_uri: str | None = None,
    token: JsonObject | None = None,
    token_endpoint_auth_method: str | None = None,
) -> OAuth2Session:
    """Return a client of the provider. Raises `secret_lost` (409)."""
    if is_lost(provider.client_secret):
        raise ProductError("secret_lost", KEY_LOST, status=409)
    client = OAuth2Session(
        provider.client_id,
        provider.client_secret or None,
        token_endpoint_auth_method=token_endpoint_auth_method,
        scope=SCOPE,
        redirect_uri=redirect_uri,
        token=token,
        code_challenge_method="S256",
        default_timeout=TIMEOUT,
    )
    client.trust_env = False  # a proxy would choose the address by itself
    client.max_redirects = 0
    for scheme in ("https://", "http://"):
        client.mount(scheme, CheckedAdapter(provider.issuer))
    return client


def metadata(provider: OpenIDProvider) -> JsonObject:
    """Return the discovery document. Raises `openid_unreachable` and `openid_issuer` (502), and `secret_lost` (409)."""
    document = _read(provider, get_well_known_url(provider.issuer, external=True))
    if document.get("issuer") != provider.issuer:
        claimed_issuer = str(document.get("issuer", ""))[:300]
        sentence = Sentence(
            "The provider calls itself “{named}”. If this is the right provider, enter exactly this issuer.",
            named=claimed_issuer,
        )
        raise ProductError("openid_issuer", sentence, status=502)
    missing = [name for name in ENDPOINTS if not isinstance(document.get(name), str)]
    if missing:
        raise _unreachable(
            provider, Sentence("The provider's discovery document has no “{missing}”.", missing=missing[0])
        )
    return document


def keys(provider: OpenIDProvider, *, fresh: bool = False) -> KeySet:
    """Return the keys with which the provider signs. `fresh`: bypass the cache, at most `MAX_KEY_REFRESHES` per minute.

    Raises `openid_unreachable` and `openid_issuer` (502), and `secret_lost` (409).
    """
    if fresh:
        allowance = count_in_window(f"openid:keys:{provider.pk}", MAX_KEY_REFRESHES, 60)
        fresh = allowance is None or not allowance.exceeded
    document = _read(provider, metadata(provider)["jwks_uri"], fresh=fresh)
    try:
        return KeySet.import_key_set(document)  # type: ignore[arg-type]  # it checks the shape itself
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise _unreachable(provider, Sentence("The provider's keys cannot be read.")) from error


def token(provider: OpenIDProvider, *, code: str, verifier: str, redirect: str) -> JsonObject:
    """Return the token response for a code.

    Raises `openid_refused` (403), `openid_unreachable` and `openid_issuer` (502), and `secret_lost` (409).
    """
    document = metadata(provider)
    methods = document.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    secret_in_body = "client_secret_basic" not in methods and "client_secret_post" in methods
    method = "client_secret_post" if secret_in_body and provider.client_secret else None
    try:
        with (
            _calling(provider),
            session(provider, redirect_uri=redirect, token_endpoint_auth_method=method) as client,
        ):
            response: JsonObject = client.fetch_token(
                document["token_endpoint"],
                grant_type="authorization_code",
                code=code,
                code_verifier=verifier,
                allow_redirects=False,
            )
    except OAuthError as error:
        raise sign_in_refused_error(
            Sentence(
                "{provider} does not accept the code: {error}.", provider=str(provider), error=str(error.error)[:100]
            )
        ) from error
    if not isinstance(response.get("id_token"), str):
        raise sign_in_refused_error(Sentence("{provider} sent no ID token.", provider=str(provider)))
    return dict(response)


def userinfo(provider: OpenIDProvider, token: JsonObject) -> JsonObject:
    """Return the claims of the provider's userinfo endpoint about the person of a token; empty without an endpoint.

    Raises `openid_unreachable` and `openid_issuer` (502), and `secret_lost` (409).
    """
    address = metadata(provider).get("userinfo_endpoint")
    if not isinstance(address, str) or not token.get("access_token"):
        return {}
    with session(provider, token=dict(token)) as client:
        return _get_json(provider, client, address)


def sign_in_refused_error(sentence: Sentence | str) -> ProductError:
    return ProductError("openid_refused", sentence, status=403)


def forget(provider: OpenIDProvider) -> None:
    """Drop the cached documents and the outage of a provider. Used when an administrator changes or tests it."""
    _documents.forget(provider.issuer)
    _outages.end(provider.issuer)


def _read(provider: OpenIDProvider, address: str, *, fresh: bool = False) -> JsonObject:
    """Return the JSON document at an address. Raises `openid_unreachable` (502) and `secret_lost` (409)."""

    def read() -> JsonObject:
        with session(provider) as client:
            return _get_json(provider, client, address, withhold_token=True)

    try:
        return _documents.get(provider.issuer, address, read, fresh=fresh)
    except WaitTooLong as error:
        raise _unreachable(provider, Sentence("The provider did not answer in time.")) from error


def _get_json(
    provider: OpenIDProvider, client: OAuth2Session, address: str, *, withhold_token: bool = False
) -> JsonObject:
    try:
        with _calling(provider):
            answer: Response = client.get(address, allow_redirects=False, withhold_token=withhold_token)
            document = answer.json() if answer.status_code == 200 else None
    except OAuthError as error:
        raise _unreachable(provider, UNREADABLE) from error
    if not isinstance(document, dict):
        raise _unreachable(
            provider,
            Sentence(
                "The provider answered with status {status_code} and no document.", status_code=answer.status_code
            ),
        )
    return document


@contextmanager
def _calling(provider: OpenIDProvider) -> Iterator[None]:
    """Run the block, which sends a request.

    Raises `openid_unreachable` (502). For some seconds after a time-out, it raises the error at once.
    """
    seconds = _outages.seconds_left(provider.issuer)
    if seconds:
        raise _unreachable(
            provider,
            Sentence(
                "The provider did not answer. The next request to it is possible in {seconds} s.", seconds=seconds
            ),
            seconds,
        )
    try:
        with wait_outside():
            yield
    except FetchRefused as error:
        raise _unreachable(provider, error.sentence) from error
    except Timeout as error:
        _outages.begin(provider.issuer)
        raise _unreachable(provider, Sentence("The provider did not answer in time."), round(RETRY_SECONDS)) from error
    except (RequestException, ValueError, OSError) as error:
        raise _unreachable(provider, UNREADABLE) from error


def _unreachable(provider: OpenIDProvider, why: Sentence, retry_after: int | None = None) -> ProductError:
    sentence = Sentence(
        "{why} You cannot sign in with “{provider}” now. Try again later, or tell an administrator.",
        why=why,
        provider=str(provider),
    )
    return ProductError("openid_unreachable", sentence, status=502, retry_after=retry_after)
