"""A sign-in through a provider.

1. `begin` stores state, nonce and PKCE verifier in the browser's session, and returns the provider's address.
2. The provider sends the browser back with the state. `take_pending` takes the stored sign-in, once and within ten
   minutes.
3. `claims_of` exchanges the code for the verified claims about the person.
"""

import secrets
import time
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from authlib.common.security import generate_token
from django.http import HttpRequest

from accounts.models import OpenIDProvider
from accounts.openid import connection, tokens
from core.errors import ProductError
from core.json_types import JsonObject
from core.sentences import Sentence

SIGN_INS = "openid"  # session key of the pending sign-ins, which are stored by state
SIGN_IN_SECONDS = 10 * 60  # seconds
MAX_PENDING = 5  # pending sign-ins per browser session, for several tabs


@dataclass(frozen=True, slots=True)
class ProviderSignIn:
    """A pending sign-in that began at the Unix time `at`. `then`: the address to open afterwards.

    `again`: the person must have signed in at the provider after this Unix time; 0 if any earlier sign-in is enough.
    """

    provider: str
    nonce: str
    verifier: str
    then: str
    at: float
    again: float = 0


def begin(request: HttpRequest, provider: OpenIDProvider, *, redirect: str, then: str, again: bool) -> str:
    """Begin a sign-in. Returns the provider's address for the browser. Raises the errors of `connection.metadata`.

    `redirect`: the address that the provider sends the browser back to. `again`: require a new sign-in there.
    """
    address = connection.metadata(provider)["authorization_endpoint"]
    now = time.time()
    sign_in = ProviderSignIn(
        provider=str(provider.pk),
        nonce=secrets.token_urlsafe(24),
        verifier=generate_token(64),
        then=then,
        at=now,
        again=now if again else 0,
    )
    with connection.session(provider, redirect_uri=redirect) as client:
        url, state = client.create_authorization_url(
            address,
            code_verifier=sign_in.verifier,
            nonce=sign_in.nonce,
            state=secrets.token_urlsafe(24),
            prompt="login" if again else None,  # Authlib leaves out parameters that are None
            max_age="0" if again else None,
        )
    pending = list(request.session.get(SIGN_INS, {}).items())[1 - MAX_PENDING :]
    request.session[SIGN_INS] = {**dict(pending), state: asdict(sign_in)}
    return str(url)


def take_pending(request: HttpRequest, pk: UUID) -> ProviderSignIn:
    """Remove the pending sign-in with the returned state from the session, and return it.

    Raises `openid_refused` (403).
    """
    sign_ins = dict(request.session.get(SIGN_INS, {}))
    stored = sign_ins.pop(request.GET.get("state", ""), None)
    request.session[SIGN_INS] = sign_ins
    if not stored or stored["provider"] != str(pk) or time.time() - stored["at"] > SIGN_IN_SECONDS:
        raise connection.sign_in_refused_error(
            Sentence("This sign-in did not start in this browser, or it took too long. Start again.")
        )
    return ProviderSignIn(
        provider=stored["provider"],
        nonce=stored["nonce"],
        verifier=stored["verifier"],
        then=stored["then"],
        at=stored["at"],
        again=stored["again"],
    )


def claims_of(request: HttpRequest, provider: OpenIDProvider, sign_in: ProviderSignIn, *, redirect: str) -> JsonObject:
    """Return the verified claims about the returned person.

    Raises `openid_refused` (403), `openid_unreachable` and `openid_issuer` (502), and `secret_lost` (409).
    """
    answer = request.GET
    if answer.get("iss", provider.issuer) != provider.issuer:
        raise connection.sign_in_refused_error(
            Sentence("This answer does not come from {provider}. Start again.", provider=str(provider))
        )
    if "code" not in answer:
        reason = (answer.get("error_description") or answer.get("error") or "?")[:200].rstrip(".")
        raise connection.sign_in_refused_error(
            Sentence("{provider} did not sign you in. It says: {said}.", provider=str(provider), said=reason)
        )
    token = connection.token(provider, code=answer["code"], verifier=sign_in.verifier, redirect=redirect)
    claims = tokens.id_token(provider, token["id_token"], nonce=sign_in.nonce, access_token=token.get("access_token"))
    if sign_in.again and _number(claims.get("auth_time")) < sign_in.again - tokens.LEEWAY:
        raise connection.sign_in_refused_error(
            Sentence(
                "{provider} does not confirm that you signed in just now. Sign in there again.", provider=str(provider)
            )
        )
    return _with_userinfo(provider, token, claims)


def _with_userinfo(provider: OpenIDProvider, token: JsonObject, claims: JsonObject) -> JsonObject:
    """Add the claims of the userinfo endpoint, since many providers leave some out of the ID token."""
    needed = ["email", *([provider.groups_claim] if provider.groups_claim else [])]
    if all(name in claims for name in needed):
        return claims
    try:
        more = connection.userinfo(provider, token)
    except ProductError:
        if provider.groups_claim in claims or not provider.groups_claim:
            return claims
        raise  # without the groups claim the person would lose their groups
    if more.get("sub") != claims["sub"]:  # OpenID Connect Core 5.3.2: the answer may be about another person
        return claims
    return {**more, **claims}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
