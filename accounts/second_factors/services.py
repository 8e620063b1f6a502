"""Every change to somebody's second factors, and the check of their codes.

The rows are django-allauth's `Authenticator`. A code of an app is taken once: the row keeps the step of time of the
last one, and none of that step or before is taken again (RFC 6238, section 5.2).
"""

from collections.abc import Mapping
from hmac import compare_digest
from typing import Any

from allauth.mfa import app_settings
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value, yield_hotp_counters_from_time
from allauth.mfa.utils import decrypt
from allauth.mfa.webauthn.internal.auth import WebAuthn
from django.contrib.auth.models import AbstractUser
from django.db import transaction

from accounts.access.delegation import require_rank
from accounts.access.second_factor import FACTORS, is_required
from accounts.access.sessions import end_sessions
from accounts.models import User
from accounts.models.workspace import workspace_at
from audit.services import record
from core.errors import NotFound, ProductError
from core.permissions import require_store
from core.sentences import Sentence

Type = Authenticator.Type
LONGEST_NAME = 100  # of a passkey
MOST_PASSKEYS = 20  # of one person


def factors_of(user: User) -> list[Authenticator]:
    """The app first, then passkeys as they were added."""
    return list(Authenticator.objects.filter(user=user, type__in=FACTORS).order_by("type", "pk"))


def codes_left(user: User) -> int | None:
    """How many recovery codes have not been used; None without any."""
    row = Authenticator.objects.filter(user=user, type=Type.RECOVERY_CODES).first()
    return None if row is None else len(RecoveryCodes(row).get_unused_codes())


@transaction.atomic
def add_app(*, user: User, secret: str, code: str, session: str | None) -> list[str]:
    """Sets up an authenticator app that shows this code now. Returns recovery codes where there are none yet.

    `session` is the key of the one that stays signed in, where this is the first factor. Raises `app_is_set_up` (409)
    and `wrong_code` (422).
    """
    first = _locked(user)
    if Authenticator.objects.filter(user=user, type=Type.TOTP).exists():
        raise ProductError("app_is_set_up", "You have an authenticator app. Remove it first.", status=409)
    step = _step_of(secret, code)
    if step is None:
        sentence = Sentence(
            "This is not the code that the app shows now. Check the clock of your phone, and enter the next one."
        )
        raise ProductError("wrong_code", sentence, status=422)
    row = TOTP.activate(user, secret).instance
    row.data["step"] = step
    row.save(update_fields=["data"])
    return _added(user, row, first=first, session=session)


@transaction.atomic
def add_passkey(*, user: User, name: str, credential: Mapping[str, Any], session: str | None) -> list[str]:
    """Stores a passkey that has been verified. Otherwise as `add_app`. Raises `too_many_passkeys` (409)."""
    first = _locked(user)
    if Authenticator.objects.filter(user=user, type=Type.WEBAUTHN).count() >= MOST_PASSKEYS:
        raise ProductError("too_many_passkeys", "You have 20 passkeys. Remove one that you do not use.", status=409)
    row = WebAuthn.add(user, name.strip()[:LONGEST_NAME] or "Passkey", dict(credential)).instance
    return _added(user, row, first=first, session=session)


def _locked(user: User) -> bool:
    """Nobody else changes this person's factors until the transaction ends. Returns whether there are none."""
    User.objects.select_for_update().get(pk=user.pk)
    return not factors_of(user)


def _added(user: User, row: Authenticator, *, first: bool, session: str | None) -> list[str]:
    record(user=user, action="second_factor.set_up", row=user, name=user.get_username(), changes={"kind": row.type})
    if first:  # a session that was opened with the password alone may be a thief's
        end_sessions(user=user, but=session)
    if Authenticator.objects.filter(user=user, type=Type.RECOVERY_CODES).exists():
        return []
    return list(RecoveryCodes.activate(user).get_unused_codes())


@transaction.atomic
def make_codes(*, user: User) -> list[str]:
    """New recovery codes; those of before end. Raises `no_second_factor` (409)."""
    if _locked(user):
        sentence = Sentence("Recovery codes stand in for a second factor. Set up an app or a passkey first.")
        raise ProductError("no_second_factor", sentence, status=409)
    Authenticator.objects.filter(user=user, type=Type.RECOVERY_CODES).delete()
    record(user=user, action="second_factor.codes_made", row=user, name=user.get_username())
    return list(RecoveryCodes.activate(user).get_unused_codes())


@transaction.atomic
def remove(*, user: User, pk: int, session: str | None) -> None:
    """Removes an app or a passkey of one's own; with the last, the recovery codes and all sessions but `session`.

    Raises `second_factor_required` (409) for the last one while the workspace asks for one.
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
    """Removes all of somebody's second factors, who has lost them, and signs them out everywhere.

    None is the product itself, by a command. Raises `outranked` (403) and `no_second_factor` (409).
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
    """Return “app” for a code as an app shows it, else “recovery”; each is tried as what it is, and counted apart."""
    digits = "".join(code.split())
    return "app" if len(digits) == app_settings.TOTP_DIGITS and digits.isdecimal() else "recovery"


@transaction.atomic
def takes_code(*, user: User, code: str) -> bool:
    """Whether it is a code of the person's app, or a recovery code; neither is taken again. Raises `secret_lost`."""
    kind = Type.TOTP if kind_of_code(code) == "app" else Type.RECOVERY_CODES
    code = "".join(code.split())
    for row in Authenticator.objects.select_for_update().filter(user=user, type=kind):
        if _app_takes(row, code) if row.type == Type.TOTP else RecoveryCodes(row).validate_code(code):
            Authenticator.objects.get(pk=row.pk).record_usage()
            if row.type == Type.RECOVERY_CODES:
                record(user=user, action="second_factor.code_used", row=user, name=user.get_username())
            return True
    return False


def _app_takes(row: Authenticator, code: str) -> bool:
    step = _step_of(decrypt(row.data["secret"]), code)
    if step is None or step <= row.data.get("step", 0):
        return False
    row.data["step"] = step
    row.save(update_fields=["data"])
    return True


def _step_of(secret: str, code: str) -> int | None:
    """The step of time, of those around now, whose code it is."""
    for step in yield_hotp_counters_from_time():
        if compare_digest(format_hotp_value(hotp_value(secret, step)).encode(), "".join(code.split()).encode()):
            return int(step)
    return None
