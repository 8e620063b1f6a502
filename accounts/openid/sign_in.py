"""One sign-in through a provider: what the browser is sent away with, and what it comes back with.

State, nonce and PKCE's verifier are in the session of the browser, each for one return within ten minutes.
"""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from authlib.common.security import generate_token
from django.http import HttpRequest

from accounts.models import OpenIDProvider
from accounts.openid import connection, tokens
from core.errors import ProductError
from core.sentences import Sentence

BEGUN = "openid"  # in the session: by state, the sign-ins that were begun
WAITS_FOR = 10 * 60  # seconds
MOST = 5  # sign-ins of one browser at a time, such as in several tabs


@dataclass(frozen=True, slots=True)
class Begun:
    """`then`: where to go afterwards. `again`: since when the person is to have signed in there, in Unix time; 0 where
    they may be signed in there already."""

    provider: str
    nonce: str
    verifier: str
    then: str
    at: float
    again: float = 0


def begin(request: HttpRequest, provider: OpenIDProvider, *, redirect: str, then: str, again: bool) -> str:
    """The address at the provider where the browser is to go. Raises as `connection.metadata`."""
    address = connection.metadata(provider)["authorization_endpoint"]
    now = time.time()
    begun = Begun(str(provider.pk), secrets.token_urlsafe(24), generate_token(64), then, now, now if again else 0)
    more = {"prompt": "login", "max_age": "0"} if again else {}
    with connection.session(provider, redirect_uri=redirect) as asking:
        url, state = asking.create_authorization_url(
            address, code_verifier=begun.verifier, nonce=begun.nonce, state=secrets.token_urlsafe(24), **more
        )
    before = list(request.session.get(BEGUN, {}).items())[1 - MOST :]
    fields = {name: getattr(begun, name) for name in Begun.__slots__}
    request.session[BEGUN] = {**dict(before), state: fields}
    return str(url)


def returned(request: HttpRequest, pk: UUID) -> Begun:
    """What was begun with the state that comes back, which is taken once. Raises `openid_refused` (403)."""
    waiting = dict(request.session.get(BEGUN, {}))
    kept = waiting.pop(request.GET.get("state", ""), None)
    request.session[BEGUN] = waiting
    begun = Begun(**kept) if kept else None
    if begun is None or begun.provider != str(pk) or time.time() - begun.at > WAITS_FOR:
        raise connection.refused(
            Sentence("This sign-in was not begun in this browser, or it took too long. Begin again.")
        )
    return begun


def claims_of(request: HttpRequest, provider: OpenIDProvider, begun: Begun, *, redirect: str) -> dict[str, Any]:
    """Who has come back: the verified claims. Raises `openid_refused` (403) and `openid_unreachable` (502)."""
    answer = request.GET
    if answer.get("iss", provider.issuer) != provider.issuer:
        raise connection.refused(Sentence("This answer is not by {provider}. Begin again.", provider=str(provider)))
    if "code" not in answer:
        said = (answer.get("error_description") or answer.get("error") or "?")[:200].rstrip(".")
        raise connection.refused(
            Sentence("{provider} has not signed you in, and says: {said}.", provider=str(provider), said=said)
        )
    given = connection.token(provider, code=answer["code"], verifier=begun.verifier, redirect=redirect)
    claims = tokens.id_token(provider, given["id_token"], nonce=begun.nonce, access_token=given.get("access_token"))
    if begun.again and _number(claims.get("auth_time")) < begun.again - tokens.LEEWAY:
        raise connection.refused(
            Sentence(
                "{provider} does not say that you have signed in just now. Sign in there again.", provider=str(provider)
            )
        )
    return _completed(provider, given, claims)


def _completed(provider: OpenIDProvider, given: Mapping[str, Any], claims: dict[str, Any]) -> dict[str, Any]:
    """Many providers leave what a person is like out of the ID token; it is then asked for."""
    wanted = ["email", *([provider.groups_claim] if provider.groups_claim else [])]
    if all(name in claims for name in wanted):
        return claims
    try:
        more = connection.userinfo(provider, given)
    except ProductError:
        if provider.groups_claim in claims or not provider.groups_claim:
            return claims
        raise  # to go on without would take the person out of their groups
    if more.get("sub") != claims["sub"]:  # as the specification asks: it may be about somebody else
        return claims
    return {**more, **claims}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
