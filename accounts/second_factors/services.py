"""Changes to a person's second factors, and the check of their codes.

The rows are django-allauth's `Authenticator`. Its views store them, within `adding` and `making_codes`. A code
of an app is accepted once (RFC 6238, section 5.2). The row stores the time step of the last accepted code. Codes of
that step and of earlier steps are refused.
"""

import time
from base64 import b32decode, b32encode
from collections.abc import Iterator
from contextlib import contextmanager
from hmac import compare_digest
from secrets import token_bytes

from allauth.mfa import app_settings
from allauth.mfa.models import Authenticator
from allauth.mfa.utils import decrypt
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.contrib.auth.models import AbstractUser
from django.db import transaction

from accounts.access.delegation import require_rank
from accounts.access.second_factor import FACTORS, is_required
from accounts.access.sessions import end_sessions
from accounts.models import User
from core.audit.services import record
from core.errors import NotFound, ProductError
from core.permissions import require_store
from core.sentences import Sentence
from workspace.models.settings import workspace_at

Type = Authenticator.Type
MAX_PASSKEYS = 20  # passkeys per person
SECRET_BYTES = 20  # of an app; RFC 4226 recommends 160 bits


def factors_of(user: User) -> list[Authenticator]:
    """Return the person's factors: the app first, then passkeys in the order in which they were added."""
    return list(Authenticator.objects.filter(user=user, type__in=FACTORS).order_by("type", "pk"))


def recovery_codes(user: User) -> list[str] | None:
    """Return the unused recovery codes, or None if none were made. Raises `secret_lost` (409)."""
    row = Authenticator.objects.filter(user=user, type=Type.RECOVERY_CODES).first()
    return None if row is None else list(row.wrap().get_unused_codes())


@contextmanager
def adding(*, user: User, kind: str, session: str | None) -> Iterator[None]:
    """Open the transaction in which a factor of this kind is stored.

    `session` is the key of the session that stays signed in if this is the first factor. Raises `app_is_set_up` and
    `too_many_passkeys` (409).
    """
    with transaction.atomic():
        first = _locked(user)
        number = Authenticator.objects.filter(user=user, type=kind).count()
        if kind == Type.TOTP and number:
            raise ProductError("app_is_set_up", "You have an authenticator app. Remove it first.", status=409)
        if number >= MAX_PASSKEYS:
            raise ProductError("too_many_passkeys", "You have 20 passkeys. Remove one that you do not use.", status=409)
        yield
        record(user=user, action="second_factor.set_up", row=user, name=user.get_username(), changes={"kind": kind})
        if first:  # an attacker with the password alone may have opened a session
            end_sessions(user=user, but=session)


def wrong_code() -> ProductError:
    sentence = Sentence(
        "This is not the code that the app shows now. Check the clock of your phone, and enter the next code."
    )
    return ProductError("wrong_code", sentence, status=422)


def no_second_factor() -> ProductError:
    sentence = Sentence("Recovery codes stand in for a second factor. Set up an app or a passkey first.")
    return ProductError("no_second_factor", sentence, status=409)


def new_secret() -> str:
    """Return a random secret for an app, in Base32."""
    return b32encode(token_bytes(SECRET_BYTES)).decode()


def use_up_code(*, user: User, code: str) -> None:
    """Mark the code as used that the person entered to set up their app."""
    _app_takes(Authenticator.objects.get(user=user, type=Type.TOTP), code)


def _locked(user: User) -> bool:
    """Lock the person's factors until the transaction ends. Returns whether there are none."""
    User.objects.select_for_update().get(pk=user.pk)
    return not factors_of(user)


@contextmanager
def making_codes(*, user: User) -> Iterator[None]:
    """Open the transaction in which new recovery codes take the place of the old ones."""
    with transaction.atomic():
        yield
        record(user=user, action="second_factor.codes_made", row=user, name=user.get_username())


@transaction.atomic
def remove(*, user: User, pk: int, session: str | None) -> None:
    """Remove a person's app or passkey. The last one takes the recovery codes and all sessions but `session` with it.

    Raises `second_factor_required` (409) for the last factor if the workspace requires one.
    """
    _locked(user)
    rows = {row.pk: row for row in factors_of(user)}
    row = rows.pop(pk, None)
    if row is None:
        raise NotFound("second factor")
    if not rows and is_required(user, workspace_at()):
        sentence = Sentence("This workspace asks for a second factor. Set up another one before you remove this one.")
        raise ProductError("second_factor_required", sentence, status=409)
    row.delete()
    if not rows:
        Authenticator.objects.filter(user=user).delete()
        end_sessions(user=user, but=session)
    record(user=user, action="second_factor.removed", row=user, name=user.get_username(), changes={"kind": row.type})


@transaction.atomic
def reset(*, user: AbstractUser | None, person: User) -> None:
    """Remove all second factors of a person who has lost them, and sign them out everywhere.

    `user` is None if a command calls it. Raises `outranked` (403) and `no_second_factor` (409).
    """
    require_store(user, person)
    require_rank(user, person)
    if not Authenticator.objects.filter(user=person).exists():
        raise ProductError(
            "no_second_factor", Sentence("“{person}” has no second factor.", person=str(person)), status=409
        )
    Authenticator.objects.filter(user=person).delete()
    record(user=user, action="second_factor.reset", row=person, name=person.get_username())
    end_sessions(user=person)


def kind_of_code(code: str) -> str:
    """Return “app” if the code has the form of an app's code, else “recovery”. Each kind has its own count of tries."""
    digits = _without_signs(code)
    return "app" if len(digits) == app_settings.TOTP_DIGITS and digits.isdecimal() else "recovery"


@transaction.atomic
def takes_code(*, user: User, code: str) -> bool:
    """Use up a code of the person's app or a recovery code. Returns False for a wrong code. Raises `secret_lost`."""
    kind = Type.TOTP if kind_of_code(code) == "app" else Type.RECOVERY_CODES
    for row in Authenticator.objects.select_for_update().filter(user=user, type=kind):
        if _app_takes(row, code) if row.type == Type.TOTP else row.wrap().validate_code(code):
            Authenticator.objects.get(pk=row.pk).record_usage()
            if row.type == Type.RECOVERY_CODES:
                record(user=user, action="second_factor.code_used", row=user, name=user.get_username())
            return True
    return False


def _app_takes(row: Authenticator, code: str) -> bool:
    step = step_of(decrypt(row.data["secret"]), code)
    if step is None or step <= row.data.get("step", 0):
        return False
    row.data["step"] = step
    row.save(update_fields=["data"])
    return True


def _without_signs(code: str) -> str:
    """Return the code without spaces and dashes, as django-allauth reads it."""
    return "".join(each for each in code if each.isalnum())


def step_of(secret: str, code: str) -> int | None:
    """Return the time step of the code, near the current time; None for a wrong code."""
    period = app_settings.TOTP_PERIOD
    tolerance = app_settings.TOTP_TOLERANCE
    app = TOTP(b32decode(secret), app_settings.TOTP_DIGITS, SHA1(), period)  # noqa: S303 - the hash that apps know
    now = int(time.time()) // period
    for step in range(now - tolerance, now + tolerance + 1):
        if compare_digest(app.generate(step * period), _without_signs(code).encode()):
            return step
    return None
