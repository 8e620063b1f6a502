"""Sign-ins and refused passwords in the audit, with a bound on the number of rows.

Refusals are counted by minute and person; all unknown names have one count. The first, tenth, hundredth … refusal of a
minute is a row. There are at most `LISTED` rows a minute, whatever the number of names. While Redis is away only the
log has them.
"""

from django.db import transaction

from accounts.models import User
from core.api.rate_limit import count_in_window
from core.audit.services import record

LISTED = 30  # rows a minute, of all people together
MINUTE = 60  # seconds


def signed_in(user: User) -> None:
    """Record a sign-in."""
    with transaction.atomic():
        record(user=user, action="person.signed_in", row=user, name=user.get_username())


def sign_in_refused(name: str) -> None:
    """Record a refused sign-in. A name without an account is not stored: people type passwords where it belongs."""
    _refused("person.sign_in_failed", None, User.objects.filter(username=name.replace("\0", "")).first())


def password_refused(user: User) -> None:
    """Record that a signed-in person entered a wrong password."""
    _refused("password.refused", user, user)


def code_refused(user: User) -> None:
    """Record that a person entered the password, and a wrong second factor."""
    _refused("second_factor.refused", user, user)


def _refused(action: str, user: User | None, person: User | None) -> None:
    of_person = count_in_window(f"audit:{action}:{person.pk if person else ''}", LISTED, MINUTE)
    if of_person is None or str(of_person.used).strip("0") != "1":
        return
    of_all = count_in_window("audit:refused", LISTED, MINUTE)
    if of_all is None or of_all.exceeded:
        return
    changes = {"times": of_person.used} | ({"more_are_not_listed": True} if of_all.used == LISTED else {})
    with transaction.atomic():
        name = person.get_username() if person else ""
        record(user=user, action=action, row=person, name=name, changes=changes)
