"""Actions of administrators on accounts: invite by link, sign out, deactivate, import from a table.

Administrators never choose a password for a person. An account is created without one, and its owner chooses it through
a one-time link. The link depends on the account's password and last sign-in, so it expires when either changes.
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
from accounts.access.login import require_password_sign_in
from accounts.mailing import sending, texts
from accounts.models import ApiToken, User
from accounts.services import end_all, revoke_token, save_user, set_rights
from core.audit.services import record
from core.background import enqueue
from core.errors import ProductError
from core.permissions import require_right, require_store
from core.sentences import Sentence

MAX_LINES = 500
MAX_MAILS_PER_ADDRESS = 5  # per request, if several accounts have the same address
COLUMNS = ("username", "email", "name", "groups")
DELIMITERS = ",;\t"
GROUP_SEPARATOR = re.compile(r"[|;]")


class Links(PasswordResetTokenGenerator):
    """Makes and checks the keys of one-time links. They expire after `settings.PASSWORD_RESET_TIMEOUT` seconds."""

    key_salt = "accounts.people.Links"


links = Links()


def invite(*, user: AbstractUser, person: User, groups: Collection[Group] = ()) -> str:
    """Store a new person without a password. Returns the key to choose one.

    Raises the errors of `save_user` and, with `groups`, of `set_rights`.
    """
    person.set_unusable_password()
    with transaction.atomic():
        save_user(user=user, person=person)
        if groups:
            set_rights(user=user, person=person, groups=groups, permissions=())
    return links.make_token(person)


@transaction.atomic
def create_key(*, user: AbstractUser, person: User) -> str:
    """Return a new key to choose a password. Raises `outranked` and `not_active`.

    If the person has no password, earlier keys expire. An existing password stays valid until the key is used.
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
        person.set_unusable_password()  # a new random value, so that earlier keys expire
        person.save(update_fields=["password"])
    record(user=user, action="person.link_made", row=person, name=person.get_username())
    return links.make_token(person)


def mail_links(links: Sequence[tuple[User, str]]) -> list[User]:
    """Mail each person their link. Returns the people who got a mail. Raises `mail_failed` (502).

    People without an address get no mail. If mail is not set up, nobody does.
    """
    mailed = [(person, address) for person, address in links if person.email and sending.has_mail_server()]
    if mailed:
        sending.send([texts.link(person, address) for person, address in mailed])
    return [person for person, _ in mailed]


def request_link(*, email: str, origin: str) -> None:
    """Mail a link to set a new password. A worker looks up the account, so no response reveals whether it exists.

    `origin`: scheme and host of this site.
    """
    transaction.on_commit(partial(enqueue, "accounts.tasks.mail_forgotten", email, origin))


def mail_forgotten(*, email: str, origin: str) -> None:
    """Mail the people with this address links to set a new password, unless they must sign in through a provider."""
    people = User.objects.filter(email__iexact=email, email_confirmed=True, is_active=True)
    for person in people[:MAX_MAILS_PER_ADDRESS]:
        try:
            require_password_sign_in(person)
        except ProductError:
            continue
        with transaction.atomic():
            record(user=None, action="password.link_mailed", row=person, name=person.get_username())
        path = reverse("welcome", args=[person.pk], query={"key": links.make_token(person)})
        sending.send([texts.link(person, origin + path)])


def find_invited(pk: UUID, key: str) -> User | None:
    """Return the person who may choose a password with this key; None if the key was used or has expired."""
    person = User.objects.filter(pk=pk, is_active=True).first()
    return person if person is not None and links.check_token(person, key) else None


def set_active(*, user: AbstractUser, person: User, active: bool) -> None:
    """Activate or deactivate an account. Deactivating signs it out everywhere.

    Raises `yourself` and the errors of `save_user`.
    """
    if person.pk == user.pk and not active:
        raise ProductError("yourself", "You cannot deactivate your own account. Ask another administrator.", status=409)
    person.is_active = active
    save_user(user=user, person=person)


def sign_out(*, user: AbstractUser, person: User, tokens: bool = False) -> None:
    """End every session of a person and the sockets of their programs. `tokens`: also revoke their API tokens."""
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
class LineError:
    """An error in a line of a table. `line` counts from 1, including the heading."""

    line: int
    sentence: Sentence


class LinesRefused(ProductError):
    """The import was refused because of these errors. Nothing was stored."""

    def __init__(self, errors: Sequence[LineError]) -> None:
        super().__init__(
            "lines_refused", gettext_noop("Nothing was imported. Correct these lines and import again."), status=422
        )
        self.errors = errors


def import_people(*, user: AbstractUser, text: str) -> list[tuple[User, str]]:
    """Invite all people in a table, or nobody if a line has an error. Returns the people with their keys.

    The first line names the columns (`COLUMNS`); `username` is required. “|” separates groups. Raises `empty_table`,
    `no_such_column`, `too_many_lines`, `LinesRefused`, and the errors of `save_user` and `set_rights`.
    """
    require_right(user, "add", User)
    table = _PeopleTable(user, list(_lines(text)))
    if table.errors:
        raise LinesRefused(table.errors)
    with transaction.atomic():
        record(user=user, action="person.imported", changes={"people": len(table.people)})
        return [(person, invite(user=user, person=person, groups=groups)) for person, groups in table.people]


def _lines(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each non-empty line as its number and its cells by column name."""
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
            problem = Sentence("There is no column “{name}”", name=unknown[0][:40])
        sentence = Sentence("{found}. The first line names the columns: username, email, name, groups.", found=problem)
        raise ProductError("no_such_column", sentence, status=422)
    for row in rows:
        if any(cell.strip() for cell in row):
            yield rows.line_num, {name: cell.strip() for name, cell in zip(names, row, strict=False)}


class _PeopleTable:
    """The `people` of a table with their groups, and the `errors` in its lines."""

    def __init__(self, user: AbstractUser, lines: list[tuple[int, dict[str, str]]]) -> None:
        if not lines:
            sentence = Sentence("The table has no people. Write one line for each person below the column names.")
            raise ProductError("empty_table", sentence, status=422)
        if len(lines) > MAX_LINES:
            sentence = Sentence(
                "The table has more than {most_lines} people. Split it, and import the parts one by one.",
                most_lines=MAX_LINES,
            )
            raise ProductError("too_many_lines", sentence, status=422)
        self._user = user
        self._lines = lines
        self._line_of_name: dict[str, int] = {}
        self.people: list[tuple[User, list[Group]]] = []
        self.errors: list[LineError] = []
        for number, cells in lines:
            self.errors += [LineError(number, sentence) for sentence in self._read(number, cells)]

    @cached_property
    def _existing_names(self) -> set[str]:
        names = [cells.get("username", "") for _, cells in self._lines]
        return set(User.objects.filter(username__in=names).values_list("username", flat=True))

    @cached_property
    def _groups(self) -> dict[str, tuple[Group, bool]]:
        """The groups by name. The flag is true if the group gives rights that the user lacks."""
        names = {name for _, cells in self._lines for name in _names(cells)}
        rows = Group.objects.filter(name__in=names)
        return {group.name: (group, group_outranks(group, self._user)) for group in rows}

    def _read(self, number: int, cells: dict[str, str]) -> Iterator[Sentence]:
        """Read one line: add its person to `people`, and yield its errors."""
        name = cells.get("username", "")
        if name in self._existing_names:
            yield Sentence("The user name “{name}” is taken. Choose another one, or remove the line.", name=name)
        if name and name in self._line_of_name:
            yield Sentence(
                "Line {name} has the user name “{name2}”, too. Keep one of them.",
                name=str(self._line_of_name[name]),
                name2=name,
            )
        self._line_of_name.setdefault(name, number)
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
            row, outranks = self._groups.get(group, (None, False))
            if row is None:
                yield Sentence(
                    ("There is no group “{group}”. Create it first, or correct the name. Separate groups with “|”."),
                    group=group,
                )
            elif outranks:
                yield Sentence(
                    "The group “{group}” gives rights that you lack, so you cannot put anybody into it.", group=group
                )
            else:
                groups.append(row)
        self.people.append((person, groups))


_LABELS = {"username": "User name", "email": "E-mail", "first_name": "Name", "last_name": "Name"}


def _names(cells: dict[str, str]) -> list[str]:
    return [name.strip() for name in GROUP_SEPARATOR.split(cells.get("groups", "")) if name.strip()]
