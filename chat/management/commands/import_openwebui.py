"""`manage.py import_openwebui`: move people and all that they have from a database of Open WebUI."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from chat.conversations.moving.groups import JOIN_HELP, GroupChoice
from chat.conversations.moving.moving import move
from chat.conversations.moving.openwebui_database import OpenWebUIDatabase
from chat.conversations.moving.sources import UnreadableSource, WrongChoice


class Command(BaseCommand):
    help = (
        "Moves people, groups, chats, folders, prompts, models with instructions, memories, files and knowledge "
        "from a copy of Open WebUI's database. People are matched by their e-mail address; missing ones get an account "
        "without a password. Run it again after an interruption: nothing is moved twice."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("database", help="the file webui.db, or an address such as postgresql://user@host/name")
        parser.add_argument("--uploads", type=Path, metavar="FOLDER", help="a copy of Open WebUI's folder data/uploads")
        parser.add_argument("--join", nargs="+", default=[], metavar="GROUP", help=JOIN_HELP)
        parser.add_argument("--only", nargs="+", default=[], metavar="EMAIL", help="move only these people")
        parser.add_argument(
            "--dry-run", action="store_true", help="read everything, list what would come, store nothing"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        uploads: Path | None = options["uploads"]
        if uploads is not None and not uploads.is_dir():
            raise CommandError(f"There is no folder {uploads}.")
        try:
            groups = GroupChoice(options["join"])
            source = OpenWebUIDatabase(options["database"], uploads)
            only = frozenset(email.lower() for email in options["only"])
            move(source, write=self.stdout.write, dry_run=options["dry_run"], groups=groups, only=only)
        except (UnreadableSource, WrongChoice) as error:
            raise CommandError(str(error)) from error
