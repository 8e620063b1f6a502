"""Sign-ins and refused passwords in the audit, of which nobody can make it write more than a little.

Refusals are counted by minute and person, all names that nobody has together. The first, tenth, hundredth … of a minute
is a row; more than `LISTED` rows a minute there are not, whatever the number of names. With Redis away only the log has
them.
"""

from django.db import transaction

from accounts.models import User
from audit.services import record
from core.api.rate_limit import counted

LISTED = 30  # rows a minute, of all people together
MINUTE = 60  # seconds


def signed_in(user: User) -> None:
    with transaction.atomic():
        record(user=user, action="person.signed_in", row=user, name=user.get_username())


def sign_in_refused(name: str) -> None:
    """`name` is stored only where somebody has it: people type passwords where the name belongs."""
    _refused("person.sign_in_failed", None, User.objects.filter(username=name.replace("\0", "")).first())


def password_refused(user: User) -> None:
    """Somebody who is signed in did not know their password."""
    _refused("password.refused", user, user)


def code_refused(user: User) -> None:
    """Somebody knew the password, and not the second factor."""
    _refused("second_factor.refused", user, user)


def _refused(action: str, user: User | None, person: User | None) -> None:
    of_person = counted(f"audit:{action}:{person.pk if person else ''}", LISTED, MINUTE)
    if of_person is None or str(of_person.used).strip("0") != "1":
        return
    of_all = counted("audit:refused", LISTED, MINUTE)
    if of_all is None or of_all.exceeded:
        return
    changes = {"times": of_person.used} | ({"more_are_not_listed": True} if of_all.used == LISTED else {})
    with transaction.atomic():
        name = person.get_username() if person else ""
        record(user=user, action=action, row=person, name=name, changes=changes)
