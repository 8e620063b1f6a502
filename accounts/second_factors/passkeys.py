"""The two ceremonies of a passkey (WebAuthn): making one, and signing in with one. The challenge is in the session.

A passkey is found by the device without a user name, and asks for its PIN or a fingerprint: so it is two factors.
"""

import json
from typing import Any

from allauth.core import context
from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.internal import auth
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from accounts.models import User
from core.errors import ProductError
from core.sentences import Sentence

LONGEST = 20_000  # characters of what a browser sends


def creation_options(request: HttpRequest, user: User) -> dict[str, Any]:
    """What the browser is to make, as `parseCreationOptionsFromJSON` takes it."""
    with context.request_context(request):
        return dict(auth.begin_registration(user, passwordless=True)["publicKey"])


def created(request: HttpRequest, text: str) -> dict[str, Any]:
    """What the browser made, verified. Raises `passkey_refused` (403)."""
    credential = _read(text)
    with context.request_context(request):
        state = auth.get_state()
        auth.clear_state()
        try:
            auth.parse_registration_response(credential)
            made = auth.get_server().register_complete(state or {}, credential)
        except (ValidationError, ValueError, KeyError, TypeError) as error:
            raise _refused() from error
    if not made.is_user_verified():
        raise _refused()
    return credential


def request_options(request: HttpRequest, user: User | None) -> dict[str, Any]:
    """For a passkey of `user`, or of whoever the device knows; as `parseRequestOptionsFromJSON` takes it."""
    with context.request_context(request):
        options = auth.get_server().authenticate_begin(
            credentials=auth.get_credentials(user) if user is not None else [],
            user_verification=auth.UserVerificationRequirement.REQUIRED,
        )
        auth.set_state(options[1])
        return dict(dict(options[0])["publicKey"])


def owner(request: HttpRequest, text: str, user: User | None) -> User:
    """Whose passkey has signed the challenge; of `user` alone, where one is given. Raises `passkey_refused` (403)."""
    credential = _read(text)
    with context.request_context(request):
        state = auth.get_state()
        auth.clear_state()  # one challenge, one try
        try:
            person = user or auth.extract_user_from_response(credential)
            auth.set_state(state or {})
            row: Authenticator = auth.complete_authentication(person, credential)
        except (ValidationError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise _refused() from error
        finally:
            auth.clear_state()
    if not isinstance(person, User) or not person.is_active:
        raise _refused()
    row.record_usage()
    return person


def _read(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text[:LONGEST])
    except ValueError as error:
        raise _refused() from error
    if not isinstance(found, dict):
        raise _refused()
    return found


def _refused() -> ProductError:
    sentence = Sentence(
        "The passkey was not taken: it is not known here, or the page was open for too long. Try again."
    )
    return ProductError("passkey_refused", sentence, status=403)
