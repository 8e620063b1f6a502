"""Record sign-ins and refused passwords in the audit, with a limit on the number of rows.

Refusals are counted per minute and person. All unknown names share one count. The first, tenth, hundredth … refusal in
a minute adds a row. There are at most `ROWS_PER_MINUTE` rows per minute, whatever the number of names. While Redis is
unavailable, refusals are only in the log.
"""

from django.db import transaction

from accounts.models import User
from core.api.rate_limit import count_in_window
from core.audit.services import record

ROWS_PER_MINUTE = 30  # rows per minute for all people together
MINUTE = 60  # seconds


def signed_in(user: User) -> None:
    """Record a sign-in."""
    with transaction.atomic():
        record(user=user, action="person.signed_in", row=user, name=user.get_username())


def sign_in_refused(name: str) -> None:
    """Record a refused sign-in.

    A name without an account is not stored, since people type passwords into this field.
    """
    _refused("person.sign_in_failed", None, User.objects.filter(username=name.replace("\0", "")).first())


def password_refused(user: User) -> None:
    """Record that a signed-in person entered a wrong password."""
    _refused("password.refused", user, user)


def code_refused(user: User) -> None:
    """Record that a person entered the right password and a wrong second factor."""
    _refused("second_factor.refused", user, user)


def _refused(action: str, user: User | None, person: User | None) -> None:
    person_count = count_in_window(f"audit:{action}:{person.pk if person else ''}", ROWS_PER_MINUTE, MINUTE)
    if person_count is None or str(person_count.used).strip("0") != "1":
        return
    total_count = count_in_window("audit:refused", ROWS_PER_MINUTE, MINUTE)
    if total_count is None or total_count.exceeded:
        return
    changes = {"times": person_count.used} | (
        {"more_are_not_listed": True} if total_count.used == ROWS_PER_MINUTE else {}
    )
    with transaction.atomic():
        name = person.get_username() if person else ""
        record(user=user, action=action, row=person, name=name, changes=changes)
