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
from typing import cast
from uuid import UUID

from django.contrib.auth.models import AbstractUser, Group
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.core.exceptions import ValidationError
from django.db import transaction
from django.urls import reverse
from django.utils.translation import gettext_noop

from accounts.access.delegation import group_outranks, require_rank
from accounts.access.login import require_password_sign_in
from accounts.groups.services import add_members, may_manage
from accounts.mailing import sending, texts
from accounts.models import ApiToken, PeopleGroup, User
from accounts.services import end_all, revoke_token, save_user, set_rights
from core.audit.services import record
from core.background import enqueue
from core.errors import ProductError
from core.permissions import require_right, require_store
from core.sentences import Sentence

MAX_LINES = 500
MAX_MAILS_PER_ADDRESS = 5  # per request, if several accounts have the same address
COLUMNS = ("username", "email", "name", "groups", "rights")
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


@dataclass(frozen=True, slots=True)
class TablePerson:
    """A new person of a table, with groups of administrators (`rights`) and groups of people."""

    person: User
    rights: Sequence[Group]
    groups: Sequence[PeopleGroup]


@dataclass(frozen=True, slots=True)
class PeopleImport:
    """The result of an import: the new people with their keys, and the people who had an account already."""

    keys: Sequence[tuple[User, str]]
    existing: Sequence[User]


def import_people(*, user: AbstractUser, text: str) -> PeopleImport:
    """Invite all new people in a table, or nobody if a line has an error. People with an account stay as they are.

    Raises as `read_people`, `save_user`, `set_rights` and `add_members`.
    """
    table = read_people(user=user, text=text)
    with transaction.atomic():
        if table.people:
            record(user=user, action="person.imported", changes={"people": len(table.people)})
        keys = [(each.person, invite(user=user, person=each.person, groups=each.rights)) for each in table.people]
        for group in dict.fromkeys(group for each in table.people for group in each.groups):
            members = [each.person for each in table.people if group in each.groups]
            add_members(user=cast("User", user), group=group, people=members)
    return PeopleImport(keys, table.existing)


def read_people(*, user: AbstractUser, text: str) -> "PeopleTable":
    """Return the people in a table, and store nothing.

    The first line names the columns (`COLUMNS`); `username` is required. “|” separates groups. Raises `empty_table`,
    `no_such_column`, `not_csv`, `too_many_lines` and `LinesRefused`.
    """
    require_right(user, "add", User)
    table = PeopleTable(user, list(_lines(text)))
    if table.errors:
        raise LinesRefused(table.errors)
    return table


def _lines(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each non-empty line as its number and its cells by column name."""
    heading = text.lstrip("\ufeff").partition("\n")[0]
    if not heading.strip():
        sentence = Sentence(
            "The table is empty. Its first line names the columns: username, email, name, groups, rights."
        )
        raise ProductError("empty_table", sentence, status=422)
    delimiter = max(DELIMITERS, key=heading.count)
    rows = csv.reader(StringIO(text.lstrip("\ufeff")), delimiter=delimiter)
    names = [name.strip().lower() for name in next(rows)]
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or "username" not in names:
        problem = Sentence("The column “username” is missing")
        if unknown:
            problem = Sentence("There is no column “{name}”", name=unknown[0][:40])
        sentence = Sentence(
            "{found}. The first line names the columns: username, email, name, groups, rights.", found=problem
        )
        raise ProductError("no_such_column", sentence, status=422)
    try:
        for row in rows:
            if any(cell.strip() for cell in row):
                yield rows.line_num, {name: cell.strip() for name, cell in zip(names, row, strict=False)}
    except csv.Error as error:  # a cell is longer than the limit of the module
        sentence = Sentence("Line {number} is not CSV. Check its quotation marks.", number=rows.line_num)
        raise ProductError("not_csv", sentence, status=422) from error


class PeopleTable:
    """The new `people` of a table, the `existing` ones, and the `errors` in its lines.

    A line is about an existing person if the user name and the e-mail address are theirs.
    """

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
        self.people: list[TablePerson] = []
        self.existing: list[User] = []
        self.errors: list[LineError] = []
        for number, cells in lines:
            self.errors += [LineError(number, sentence) for sentence in self._read(number, cells)]

    @cached_property
    def _accounts(self) -> dict[str, User]:
        """The accounts with the user names of the table."""
        names = [cells.get("username", "") for _, cells in self._lines]
        return {person.username: person for person in User.objects.filter(username__in=names)}

    @cached_property
    def _rights(self) -> dict[str, tuple[Group, bool]]:
        """The groups of administrators by name. The flag is true if the group gives rights that the user lacks."""
        names = {name for _, cells in self._lines for name in _names(cells, "rights")}
        rows = Group.objects.filter(name__in=names)
        return {group.name: (group, group_outranks(group, self._user)) for group in rows}

    @cached_property
    def _groups(self) -> dict[str, tuple[PeopleGroup, bool]]:
        """The groups of people by name. The flag is true if the user may change the members."""
        names = {name for _, cells in self._lines for name in _names(cells, "groups")}
        rows = PeopleGroup.objects.filter(name__in=names)
        return {group.name: (group, may_manage(cast("User", self._user), group)) for group in rows}

    def _read(self, number: int, cells: dict[str, str]) -> Iterator[Sentence]:
        """Read one line: add its person to `people` or `existing`, and yield its errors."""
        name = cells.get("username", "")
        account = self._accounts.get(name)
        if name and name in self._line_of_name:
            yield Sentence(
                "Line {name} has the user name “{name2}”, too. Keep one of them.",
                name=str(self._line_of_name[name]),
                name2=name,
            )
        elif account is not None:
            if account.email.lower() == cells.get("email", "").lower():
                self._line_of_name[name] = number
                self.existing.append(account)
                return
            yield Sentence("The user name “{name}” is taken. Choose another one, or remove the line.", name=name)
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
        rights: list[Group] = []
        groups: list[PeopleGroup] = []
        yield from self._read_rights(cells, rights)
        yield from self._read_groups(cells, groups)
        self.people.append(TablePerson(person, rights, groups))

    def _read_rights(self, cells: dict[str, str], rights: list[Group]) -> Iterator[Sentence]:
        """Append the groups of administrators that a line names to `rights`, and yield the errors."""
        for name in _names(cells, "rights"):
            row, outranks = self._rights.get(name, (None, False))
            if row is None:
                yield Sentence(
                    "There is no group of administrators “{group}”. Create it first, or correct the name. Separate "
                    "groups with “|”.",
                    group=name,
                )
            elif outranks:
                yield Sentence(
                    "The group “{group}” gives rights that you lack, so you cannot put anybody into it.", group=name
                )
            else:
                rights.append(row)

    def _read_groups(self, cells: dict[str, str], groups: list[PeopleGroup]) -> Iterator[Sentence]:
        """Append the groups of people that a line names to `groups`, and yield the errors."""
        for name in _names(cells, "groups"):
            row, is_manager = self._groups.get(name, (None, False))
            if row is None:
                yield Sentence(
                    "There is no group of people “{group}”. Create it first, or correct the name. Separate groups "
                    "with “|”. Groups of administrators stand in the column “rights”.",
                    group=name,
                )
            elif not is_manager:
                yield Sentence("You may not change who is in the group “{group}”. Remove it from the line.", group=name)
            else:
                groups.append(row)


_LABELS = {"username": "User name", "email": "E-mail", "first_name": "Name", "last_name": "Name"}


def _names(cells: dict[str, str], column: str) -> list[str]:
    return [name.strip() for name in GROUP_SEPARATOR.split(cells.get(column, "")) if name.strip()]
