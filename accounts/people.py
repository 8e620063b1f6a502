"""What administrators do with accounts beyond a form: invite by a link, sign out, switch off, import from a table.

Nobody but its owner ever types a password: an account begins without one, and whoever has its one-time link chooses it.
The link is bound to the account as it is, to its password and last sign-in, so it ends when either changes.
"""

import csv
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from io import StringIO
from uuid import UUID

from django.contrib.auth.models import AbstractUser, Group
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.core.exceptions import ValidationError
from django.db import transaction
from django.urls import reverse
from django.utils.translation import gettext_noop

from accounts.access.delegation import group_outranks, require_rank
from accounts.access.login import require_own_way
from accounts.mailing import sending, texts
from accounts.models import ApiToken, User
from accounts.services import end_all, revoke_token, save_user, set_rights
from core.audit.services import record
from core.background import enqueue
from core.errors import ProductError
from core.permissions import require_right, require_store
from core.sentences import Sentence

MOST_LINES = 500
MOST_OF_ADDRESS = 5  # accounts that have the same one
COLUMNS = ("username", "email", "name", "groups")
DELIMITERS = ",;\t"
BETWEEN_GROUPS = re.compile(r"[|;]")


class Links(PasswordResetTokenGenerator):
    """Ends after `settings.PASSWORD_RESET_TIMEOUT` seconds."""

    key_salt = "accounts.people.Links"


links = Links()


def invite(*, user: AbstractUser, person: User, groups: Collection[Group] = ()) -> str:
    """Stores somebody new who has no password yet; the key with which they choose one. Raises as `save_user`."""
    person.set_unusable_password()
    with transaction.atomic():
        save_user(user=user, person=person)
        if groups:
            set_rights(user=user, person=person, groups=groups, permissions=())
    return links.make_token(person)


@transaction.atomic
def new_key(*, user: AbstractUser, person: User) -> str:
    """Another key to choose a password with. Those of somebody who has none yet end; a password stays until it is used.

    Raises `outranked` and `not_active`.
    """
    require_store(user, person)
    require_rank(user, person)
    if not person.is_active:
        raise ProductError(
            "not_active",
            Sentence("“{person}” is deactivated. Activate the account first.", person=str(person)),
            status=409,
        )
    if not person.has_usable_password():
        person.set_unusable_password()  # another one, which the keys until now do not fit
        person.save(update_fields=["password"])
    record(user=user, action="person.link_made", row=person, name=person.get_username())
    return links.make_token(person)


def mail_links(made: Sequence[tuple[User, str]]) -> list[User]:
    """Mails to each, where mail is set up and they have an address, their link; to whom. Raises `mail_failed` (502)."""
    found = [(person, address) for person, address in made if person.email and sending.is_set()]
    if found:
        sending.send([texts.link(person, address) for person, address in found])
    return [person for person, _ in found]


def ask_for_link(*, email: str, origin: str) -> None:
    """Somebody has forgotten their password. Whether anybody has the address is looked up by a worker, so that nothing
    tells it. `origin` is scheme and host of this site as they know it."""
    transaction.on_commit(partial(enqueue, "accounts.tasks.mail_forgotten", email, origin))


def mail_forgotten(*, email: str, origin: str) -> None:
    """Mails links to choose another password to whom this address belongs; those who sign in elsewhere get none."""
    found = User.objects.filter(email__iexact=email, email_confirmed=True, is_active=True)
    for person in found[:MOST_OF_ADDRESS]:
        try:
            require_own_way(person)
        except ProductError:
            continue
        with transaction.atomic():
            record(user=None, action="password.link_mailed", row=person, name=person.get_username())
        path = reverse("welcome", args=[person.pk], query={"key": links.make_token(person)})
        sending.send([texts.link(person, origin + path)])


def invited(pk: UUID, key: str) -> User | None:
    """Who may choose a password with this key; None when it was used or has ended."""
    person = User.objects.filter(pk=pk, is_active=True).first()
    return person if person is not None and links.check_token(person, key) else None


def switch(*, user: AbstractUser, person: User, active: bool) -> None:
    """Lets somebody in again, or no more, which signs them out everywhere. Raises `yourself`, and as `save_user`."""
    if person.pk == user.pk and not active:
        raise ProductError("yourself", "You cannot deactivate your own account. Ask another administrator.", status=409)
    person.is_active = active
    save_user(user=user, person=person)


def sign_out(*, user: AbstractUser, person: User, tokens: bool = False) -> None:
    """Ends every session with what it has open, and what programs have open; `tokens`: ends these for good, too."""
    require_store(user, person)
    require_rank(user, person)
    if tokens:
        require_right(user, "change", ApiToken)
    with transaction.atomic():
        record(user=user, action="person.signed_out_everywhere", row=person, name=person.get_username())
        end_all(person)
        for token in ApiToken.objects.visible_to(person).usable() if tokens else ():
            revoke_token(user=user, token=token)


@dataclass(frozen=True, slots=True)
class Wrong:
    """`line` counts from 1, the heading included."""

    line: int
    sentence: Sentence


class LinesRefused(ProductError):
    """Nothing was imported; `wrong` says of each line why."""

    def __init__(self, wrong: Sequence[Wrong]) -> None:
        super().__init__(
            "lines_refused", gettext_noop("Nothing was imported. Correct these lines and import again."), status=422
        )
        self.wrong = wrong


def import_people(*, user: AbstractUser, text: str) -> list[tuple[User, str]]:
    """Everybody of a table with their keys, or, when one line is wrong, nobody.

    The first line names the columns, `COLUMNS`, of which `username` must be there; between groups stands “|”.
    Raises `empty_table`, `no_such_column`, `too_many_lines`, `LinesRefused`, and as `save_user` and `set_rights`.
    """
    require_right(user, "add", User)
    table = _Table(user, list(_lines(text)))
    if table.wrong:
        raise LinesRefused(table.wrong)
    with transaction.atomic():
        record(user=user, action="person.imported", changes={"people": len(table.people)})
        return [(person, invite(user=user, person=person, groups=groups)) for person, groups in table.people]


def _lines(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The number of each line that is not empty, and its cells by column."""
    heading = text.lstrip("\ufeff").partition("\n")[0]
    if not heading.strip():
        sentence = Sentence("The table is empty. Its first line names the columns: username, email, name, groups.")
        raise ProductError("empty_table", sentence, status=422)
    delimiter = max(DELIMITERS, key=heading.count)
    rows = csv.reader(StringIO(text.lstrip("\ufeff")), delimiter=delimiter)
    names = [name.strip().lower() for name in next(rows)]
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or "username" not in names:
        problem = Sentence("The column “username” is missing")
        if unknown:
            problem = Sentence("“{name}” is no column", name=unknown[0][:40])
        sentence = Sentence("{found}. The first line names the columns: username, email, name, groups.", found=problem)
        raise ProductError("no_such_column", sentence, status=422)
    for row in rows:
        if any(cell.strip() for cell in row):
            yield rows.line_num, {name: cell.strip() for name, cell in zip(names, row, strict=False)}


class _Table:
    """What a table's lines come to: `people` with their groups, and what is `wrong`."""

    def __init__(self, user: AbstractUser, lines: list[tuple[int, dict[str, str]]]) -> None:
        if not lines:
            sentence = Sentence("The table names nobody. Write one line for each person below the columns.")
            raise ProductError("empty_table", sentence, status=422)
        if len(lines) > MOST_LINES:
            sentence = Sentence(
                "The table has more than {most_lines} people. Split it, and import the parts one by one.",
                most_lines=MOST_LINES,
            )
            raise ProductError("too_many_lines", sentence, status=422)
        self._user, self._lines = user, lines
        self._seen: dict[str, int] = {}
        self.people: list[tuple[User, list[Group]]] = []
        self.wrong: list[Wrong] = []
        for number, cells in lines:
            found = list(self._read(number, cells))
            self.wrong += [Wrong(number, sentence) for sentence in found]

    @cached_property
    def _taken(self) -> set[str]:
        names = [cells.get("username", "") for _, cells in self._lines]
        return set(User.objects.filter(username__in=names).values_list("username", flat=True))

    @cached_property
    def _groups(self) -> dict[str, tuple[Group, bool]]:
        """By name, and whether it gives more than the user has."""
        named = {name for _, cells in self._lines for name in _names(cells)}
        found = Group.objects.filter(name__in=named)
        return {group.name: (group, group_outranks(group, self._user)) for group in found}

    def _read(self, number: int, cells: dict[str, str]) -> Iterator[Sentence]:
        """Everything that is wrong with a line, in sentences."""
        name = cells.get("username", "")
        if name in self._taken:
            yield Sentence(
                "There is somebody called “{name}” already. Choose another user name, or leave the line out.", name=name
            )
        if name and name in self._seen:
            yield Sentence(
                "Line {name} has the user name “{name2}”, too. Keep one of them.",
                name=str(self._seen[name]),
                name2=name,
            )
        self._seen.setdefault(name, number)
        first, _, last = cells.get("name", "").rpartition(" ")
        person = User(
            username=name, email=cells.get("email", ""), first_name=first or last, last_name=last * bool(first)
        )
        try:
            person.clean_fields(exclude={"password"})
        except ValidationError as error:
            for field, problems in error.message_dict.items():
                yield Sentence.verbatim(problems[0]).about(_LABELS[field])
        person.clean()
        groups = []
        for group in _names(cells):
            row, more = self._groups.get(group, (None, False))
            if row is None:
                yield Sentence(
                    "There is no group “{group}”. Make it first, or correct the name; between groups stands “|”.",
                    group=group,
                )
            elif more:
                yield Sentence(
                    "The group “{group}” gives rights that you lack, so you cannot put anybody into it.", group=group
                )
            else:
                groups.append(row)
        self.people.append((person, groups))


_LABELS = {"username": "User name", "email": "E-mail", "first_name": "Name", "last_name": "Name"}


def _names(cells: dict[str, str]) -> list[str]:
    return [name.strip() for name in BETWEEN_GROUPS.split(cells.get("groups", "")) if name.strip()]
