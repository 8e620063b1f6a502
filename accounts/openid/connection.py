"""What is read from a provider: its discovery document, its keys, a token for a code, what it says of a person.

Document and keys are read once for all requests that wait for them (`accounts.openid.shared`). A provider that did not
answer in time is not asked for some seconds. Nobody holds a connection to the database while the provider is asked.

The issuer's own host is where an administrator has sent us, so it may be in a private network. What its document names
elsewhere must be on the public internet. Over http goes only what stays in a private network. Redirects are not
followed.
"""

import time
from collections.abc import Iterator, Mapping
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
from core.api.rate_limit import counted
from core.crypto import LOST, is_lost
from core.errors import ProductError
from core.net.fetch import system_tls
from core.net.url_safety import Guard, Refused, is_public
from core.outside import wait_outside
from core.sentences import Sentence

TIMEOUT = 10.0  # seconds without a byte
BODY_SECONDS = 10.0  # for all of an answer's body
ASKED_AGAIN = 15.0  # seconds after which a provider that did not answer in time is asked again
LARGEST = 1_000_000  # bytes of an answer
KEPT_FOR = 600.0  # seconds that document and keys are used before they are read anew
READINGS = 30  # of a provider's keys anew within a minute, for tokens that none of those known has signed
SCOPE = "openid profile email"
UNREADABLE = Sentence("It gave no answer that can be read.")
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_EVERYWHERE = (ip_network("0.0.0.0/0"), ip_network("::/0"))
_documents = SharedDocuments(kept_seconds=KEPT_FOR, waiting_seconds=2 * (TIMEOUT + BODY_SECONDS))
_outages = Outages(seconds=ASKED_AGAIN)


class CheckedAdapter(HTTPAdapter):
    """Connects to the very address that was checked, as `core.net.fetch.CheckedTransport` does."""

    def __init__(self, issuer: str) -> None:
        super().__init__()
        self._issuer = httpx2.URL(issuer)

    def get_connection_with_tls_context(
        self, request: PreparedRequest, verify: Any, proxies: Any = None, cert: Any = None
    ) -> Any:
        url = httpx2.URL(request.url or "")
        own = url.host == self._issuer.host
        guard = Guard(ports=frozenset(range(1, 65_536)), allowed_networks=_EVERYWHERE) if own else Guard()
        address = async_to_sync(guard.addresses_of)(url)[0]
        if url.scheme == "http" and is_public(ip_address(address)):
            raise Refused(
                Sentence("{host} is on the public internet, so its address must begin with https://.", host=url.host)
            )
        secure = url.scheme == "https"
        tls = {"ssl_context": system_tls(), "server_hostname": url.host, "assert_hostname": url.host} if secure else {}
        port = url.port or (443 if secure else 80)
        return self.poolmanager.connection_from_host(address, port, url.scheme, pool_kwargs=tls)

    def cert_verify(self, *given: Any) -> None:
        """The context of the connection says whom it trusts: as everywhere in the product, whom the machine does."""

    def send(self, request: PreparedRequest, *given: Any, **options: Any) -> Response:
        request.headers["Host"] = httpx2.URL(request.url or "").netloc.decode("ascii")
        answer = super().send(request, *given, **{**options, "stream": True})
        try:
            answer._content = self._body(answer.raw)  # where requests keeps what was read
        except ReadTimeoutError as error:
            raise ReadTimeout(error) from error
        except HTTPError as error:
            raise ChunkedEncodingError(error) from error
        return answer

    def _body(self, raw: Any) -> bytes:
        """Read the body. Raises `Refused` for a large one, and `ReadTimeout` for one that comes by drops."""
        body, end = bytearray(), time.monotonic() + BODY_SECONDS
        while piece := raw.read1(LARGEST, decode_content=True):
            body += piece
            if len(body) > LARGEST:
                raise Refused(Sentence("{host} gave an answer that is too large.", host=self._issuer.host))
            if time.monotonic() > end:
                raise ReadTimeout("the body took too long")
        return bytes(body)


def session(provider: OpenIDProvider, **more: Any) -> OAuth2Session:
    """Raises `secret_lost` (409)."""
    if is_lost(provider.client_secret):
        raise ProductError("secret_lost", LOST, status=409)
    made = OAuth2Session(
        provider.client_id,
        provider.client_secret or None,
        scope=SCOPE,
        code_challenge_method="S256",
        default_timeout=TIMEOUT,
        **more,
    )
    made.trust_env = False  # through a proxy, the address would be the proxy's choice
    made.max_redirects = 0
    for scheme in ("https://", "http://"):
        made.mount(scheme, CheckedAdapter(provider.issuer))
    return made


def metadata(provider: OpenIDProvider) -> dict[str, Any]:
    """The discovery document. Raises `openid_unreachable` (502) and `openid_issuer` (502)."""
    found = _read(provider, get_well_known_url(provider.issuer, external=True))
    if found.get("issuer") != provider.issuer:
        named = str(found.get("issuer", ""))[:300]
        sentence = Sentence(
            "The provider calls itself “{named}”. Enter just this as the issuer, if it is the right one.", named=named
        )
        raise ProductError("openid_issuer", sentence, status=502)
    missing = [name for name in ENDPOINTS if not isinstance(found.get(name), str)]
    if missing:
        raise _unreachable(provider, Sentence("Its discovery document has no “{missing}”.", missing=missing[0]))
    return found


def keys(provider: OpenIDProvider, *, fresh: bool = False) -> KeySet:
    """Those that the provider signs with. `fresh`: as they are now. Raises `openid_unreachable` (502)."""
    if fresh:
        allowance = counted(f"openid:keys:{provider.pk}", READINGS, 60)
        fresh = allowance is None or not allowance.exceeded
    found = _read(provider, metadata(provider)["jwks_uri"], fresh=fresh)
    try:
        return KeySet.import_key_set(found)  # type: ignore[arg-type]  # it checks the shape itself
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise _unreachable(provider, Sentence("Its keys cannot be read.")) from error


def token(provider: OpenIDProvider, *, code: str, verifier: str, redirect: str) -> dict[str, Any]:
    """What the provider gives for a code. Raises `openid_unreachable` (502) and `openid_refused` (403)."""
    known = metadata(provider)
    methods = known.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    secret_in_body = "client_secret_basic" not in methods and "client_secret_post" in methods
    how = {"token_endpoint_auth_method": "client_secret_post"} if secret_in_body and provider.client_secret else {}
    try:
        with _calling(provider), session(provider, redirect_uri=redirect, **how) as asking:
            given: Mapping[str, Any] = asking.fetch_token(
                known["token_endpoint"],
                grant_type="authorization_code",
                code=code,
                code_verifier=verifier,
                allow_redirects=False,
            )
    except OAuthError as error:
        raise refused(
            Sentence(
                "{provider} does not take the code: {error}.", provider=str(provider), error=str(error.error)[:100]
            )
        ) from error
    if not isinstance(given.get("id_token"), str):
        raise refused(Sentence("{provider} gave no ID token.", provider=str(provider)))
    return dict(given)


def userinfo(provider: OpenIDProvider, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the provider says of the person of a token; empty where it has no such address."""
    address = metadata(provider).get("userinfo_endpoint")
    if not isinstance(address, str) or not given.get("access_token"):
        return {}
    with session(provider, token=dict(given)) as asking:
        return _json(provider, asking, address)


def refused(sentence: Sentence | str) -> ProductError:
    return ProductError("openid_refused", sentence, status=403)


def forget(provider: OpenIDProvider) -> None:
    """Have the provider asked anew: somebody has changed or tests it."""
    _documents.forget(provider.issuer)
    _outages.end(provider.issuer)


def _read(provider: OpenIDProvider, address: str, *, fresh: bool = False) -> dict[str, Any]:
    def read() -> dict[str, Any]:
        with session(provider) as asking:
            return _json(provider, asking, address, withhold_token=True)

    try:
        return _documents.get(provider.issuer, address, read, fresh=fresh)
    except WaitTooLong as error:
        raise _unreachable(provider, Sentence("It did not answer in time.")) from error


def _json(provider: OpenIDProvider, asking: OAuth2Session, address: str, **options: Any) -> dict[str, Any]:
    try:
        with _calling(provider):
            answer: Response = asking.get(address, allow_redirects=False, **options)
            document = answer.json() if answer.status_code == 200 else None
    except OAuthError as error:
        raise _unreachable(provider, UNREADABLE) from error
    if not isinstance(document, dict):
        raise _unreachable(
            provider, Sentence("It answered with status {status_code} and no document.", status_code=answer.status_code)
        )
    return document


@contextmanager
def _calling(provider: OpenIDProvider) -> Iterator[None]:
    """Run the block, which asks the provider. Raises `openid_unreachable` (502), also for one that hung just now."""
    seconds = _outages.seconds_left(provider.issuer)
    if seconds:
        raise _unreachable(
            provider,
            Sentence("It did not answer just now, and is asked again in {seconds} s.", seconds=seconds),
            seconds,
        )
    try:
        with wait_outside():
            yield
    except Refused as error:
        raise _unreachable(provider, error.sentence) from error
    except Timeout as error:
        _outages.begin(provider.issuer)
        raise _unreachable(provider, Sentence("It did not answer in time."), round(ASKED_AGAIN)) from error
    except (RequestException, ValueError, OSError) as error:
        raise _unreachable(provider, UNREADABLE) from error


def _unreachable(provider: OpenIDProvider, why: Sentence, retry_after: int | None = None) -> ProductError:
    sentence = Sentence(
        "{why} So “{provider}” cannot be used now: try again, or tell an administrator.",
        why=why,
        provider=str(provider),
    )
    later = {} if retry_after is None else {"retry_after": retry_after}
    return ProductError("openid_unreachable", sentence, status=502, **later)
