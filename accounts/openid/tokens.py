"""Check the tokens that a provider has signed.

joserfc checks the signature, and Authlib checks the claims. The accepted algorithms are fixed here and not read from
the provider's document. They exclude algorithms with a shared secret, and the algorithm “none”.
"""

import time
from typing import TypeAlias

from authlib.oauth2.claims import JWTClaims
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError
from joserfc.jws import JWSRegistry

from accounts.models import OpenIDProvider
from accounts.openid.connection import keys, sign_in_refused_error
from core.json_types import JsonObject
from core.sentences import Sentence

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
LEEWAY = 60  # seconds by which clocks may differ
LOGOUT_AGE = 600  # seconds; an older token is probably a replay
LOGOUT = "http://schemas.openid.net/event/backchannel-logout"
_REGISTRY = JWSRegistry(algorithms=list(ALGORITHMS), strict_check_header=False)
_ClaimOptions: TypeAlias = dict[str, dict[str, bool | str]]  # by claim, in Authlib's form


def id_token(provider: OpenIDProvider, text: str, *, nonce: str, access_token: str | None) -> JsonObject:
    """Return the claims of an ID token issued to this client for this sign-in. Raises `openid_refused` (403)."""
    token = _signed(provider, text)
    params = {"nonce": nonce, "client_id": provider.client_id, "access_token": access_token}
    claims = CodeIDToken(token.claims, token.header, _options(provider), params)
    _validate(provider, claims)
    return dict(claims)


def logout_token(provider: OpenIDProvider, text: str) -> JsonObject:
    """Return the claims of a logout token, by which the provider signs a user out. They have `sub`, `sid` or both.


    Raises `openid_refused` (403).
    """
    token = _signed(provider, text)
    options: _ClaimOptions = {**_options(provider), "iat": {"essential": True}, "jti": {"essential": True}}
    claims = JWTClaims(token.claims, token.header, options)
    _validate(provider, claims)
    subjects = [claims[name] for name in ("sub", "sid") if name in claims]
    events = claims.get("events")
    if (
        not isinstance(events, dict)
        or LOGOUT not in events
        or "nonce" in claims  # only ID tokens have one
        or not subjects
        or not all(isinstance(each, str) for each in subjects)
        or abs(time.time() - claims["iat"]) > LOGOUT_AGE
    ):
        raise sign_in_refused_error(
            Sentence("This is no logout token of {provider}, or it is too old.", provider=str(provider))
        )
    return dict(claims)


def _signed(provider: OpenIDProvider, text: str) -> jwt.Token:
    """Check the signature of a token and return the token. Raises `openid_refused` (403)."""
    try:
        try:
            return jwt.decode(text, keys(provider), registry=_REGISTRY)
        except (InvalidKeyIdError, BadSignatureError):  # the provider may have new keys
            return jwt.decode(text, keys(provider, fresh=True), registry=_REGISTRY)
    except (JoseError, ValueError, TypeError) as error:
        raise sign_in_refused_error(
            Sentence("The token of {provider} has no signature that Glasshouse accepts.", provider=str(provider))
        ) from error


def _options(provider: OpenIDProvider) -> "_ClaimOptions":
    """Return the claims that every token must have, in Authlib's form."""
    return {
        "iss": {"essential": True, "value": provider.issuer},
        "aud": {"essential": True, "value": provider.client_id},
    }


def _validate(provider: OpenIDProvider, claims: JWTClaims) -> None:
    try:
        claims.validate(leeway=LEEWAY)
    except (JoseError, ValueError, TypeError) as error:
        raise sign_in_refused_error(
            Sentence(
                "The token of {provider} is not for this sign-in, or has expired. Try again.",
                provider=str(provider),
            )
        ) from error
