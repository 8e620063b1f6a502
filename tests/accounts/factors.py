"""A stand-in for a person's authenticator app."""

import time
from base64 import b32decode, b32encode
from secrets import token_bytes, token_hex

from allauth.mfa.models import Authenticator
from allauth.mfa.utils import encrypt
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

from accounts.access.second_factor import has_second_factor
from accounts.models import User
from accounts.second_factors import services

STEP = 30  # seconds


def code_of(secret: str, later: int = 0) -> str:
    """Return the code that the app shows now, or so many steps later; earlier for a negative number."""
    now = int(time.time()) // STEP + later
    app = TOTP(b32decode(secret), 6, SHA1(), STEP, enforce_key_length=False)  # noqa: S303 - the hash that apps know
    return app.generate(now * STEP).decode()


def with_app(person: User, session: str | None = None) -> tuple[str, list[str]]:
    """Sets one up, with recovery codes, and stays signed in with this session. Returns its secret, and the codes."""
    secret = b32encode(token_bytes(20)).decode()
    with services.adding(user=person, kind="totp", session=session):
        Authenticator.objects.create(user=person, type="totp", data={"secret": encrypt(secret)})
        seed = {"seed": encrypt(token_hex(40)), "used_mask": 0}
        Authenticator.objects.create(user=person, type="recovery_codes", data=seed)
    codes = services.recovery_codes(person)
    assert has_second_factor(person) and codes
    return secret, codes
