"""What stands in for a person's authenticator app."""

import time

from allauth.mfa.totp.internal.auth import format_hotp_value, generate_totp_secret, hotp_value

from accounts.access.second_factor import has_second_factor
from accounts.models import User
from accounts.second_factors.services import add_app

STEP = 30  # seconds


def code_of(secret: str, later: int = 0) -> str:
    """What the app shows now, or so many steps later; of before, with a negative number."""
    return str(format_hotp_value(hotp_value(secret, int(time.time()) // STEP + later)))


def with_app(person: User) -> tuple[str, list[str]]:
    """Sets one up, by a code of the step before: so that this step's is still to be used. Its secret, and the recovery
    codes."""
    secret = generate_totp_secret()
    codes = add_app(user=person, secret=secret, code=code_of(secret, -1), session=None)
    assert has_second_factor(person)
    return secret, codes
