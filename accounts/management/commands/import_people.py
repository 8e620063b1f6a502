"""`manage.py import_people`: invite the people in a table."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from accounts import people
from accounts.groups.effects import effects_of
from accounts.models import PeopleGroup, User
from core.errors import ProductError

MAX_BYTES = 5_000_000  # of the table


class Command(BaseCommand):
    help = (
        "Invites the people in a CSV file with the columns username, email, name, groups (groups of people) and rights "
        "(groups of administrators). Nobody is invited if a line has an error. People with an account stay as they "
        "are, so a second run changes nothing. Each new person gets a link to choose a password: by mail, or printed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("table", type=Path, help="a CSV file in UTF-8")
        name = "user name of the administrator in whose name it is done; the audit has it"
        parser.add_argument("--as", required=True, dest="administrator", metavar="USER", help=name)
        parser.add_argument("--dry-run", action="store_true", help="check the table, list the people, store nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        administrator = User.objects.filter(username=options["administrator"], is_active=True).first()
        if administrator is None:
            raise CommandError(f"There is no active user “{options['administrator']}”.")
        try:
            if options["dry_run"]:
                self._list(people.read_people(user=administrator, text=_read(options["table"])))
            else:
                self._import(administrator, _read(options["table"]))
        except people.LinesRefused as error:
            lines = "\n".join(f"Line {each.line}: {each.sentence.english}" for each in error.errors)
            raise CommandError(f"{error.detail}\n{lines}") from error
        except ProductError as error:
            raise CommandError(error.detail) from error

    def _list(self, table: people.PeopleTable) -> None:
        """Print what an import would do."""
        for each in table.people:
            groups = f", groups: {', '.join(map(_describe, each.groups))}" if each.groups else ""
            rights = f", rights: {', '.join(group.name for group in each.rights)}" if each.rights else ""
            self.stdout.write(f"{each.person.get_username()}: a new account{groups}{rights}")
        for person in table.existing:
            self.stdout.write(f"{person.get_username()}: here already")

    def _import(self, administrator: User, text: str) -> None:
        if not settings.SITE_URL:
            raise CommandError("Set SITE_URL to the address of this workspace. The links for the people begin with it.")
        result = people.import_people(user=administrator, text=text)
        links = [
            (person, settings.SITE_URL + reverse("welcome", args=[person.pk], query={"key": key}))
            for person, key in result.keys
        ]
        try:
            mailed = people.mail_links(links)
        except ProductError as error:
            self.stderr.write(error.detail)
            mailed = []
        for person, link in links:
            self.stdout.write(f"{person.get_username()}: {'a link was mailed' if person in mailed else link}")
        self.stdout.write(f"{len(links)} new, {len(result.existing)} here already.")


def _describe(group: PeopleGroup) -> str:
    """Return the name of a group, and what its members have."""
    effects = effects_of(group)
    return f"{group.name} (its members have {', '.join(effects)})" if effects else group.name


def _read(path: Path) -> str:
    """Return the text of the table. Raises `CommandError`."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
    if len(content) > MAX_BYTES:
        raise CommandError(f"{path} is larger than {MAX_BYTES:,} bytes. Split it.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not written in UTF-8. Save it as CSV in UTF-8.") from error
