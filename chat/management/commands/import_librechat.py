"""`manage.py import_librechat`: move people and all that they have from a dump of LibreChat's database."""

from contextlib import closing
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from chat.conversations.moving.groups import JOIN_HELP, GroupChoice
from chat.conversations.moving.librechat_dump import LibreChatDump
from chat.conversations.moving.moving import move
from chat.conversations.moving.sources import UnreadableSource, WrongChoice


class Command(BaseCommand):
    help = (
        "Moves people, groups, conversations, projects, prompts, presets, agents, memories and files from a dump of "
        "LibreChat's database, made by mongodump or mongoexport. People are matched by their e-mail address; missing "
        "ones get an account without a password. Run it again after an interruption: nothing is moved twice."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path, help="the folder with messages.bson or messages.json")
        parser.add_argument("--uploads", type=Path, metavar="FOLDER", help="a copy of LibreChat's folder uploads")
        parser.add_argument("--images", type=Path, metavar="FOLDER", help="a copy of its folder client/public/images")
        parser.add_argument("--join", nargs="+", default=[], metavar="GROUP", help=JOIN_HELP)
        parser.add_argument("--only", nargs="+", default=[], metavar="EMAIL", help="move only these people")
        parser.add_argument(
            "--dry-run", action="store_true", help="read everything, list what would come, store nothing"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        for folder in (options["folder"], options["uploads"], options["images"]):
            if folder is not None and not folder.is_dir():
                raise CommandError(f"There is no folder {folder}.")
        only = frozenset(email.lower() for email in options["only"])
        try:
            groups = GroupChoice(options["join"])
            with closing(LibreChatDump(options["folder"], options["uploads"], options["images"])) as source:
                move(source, write=self.stdout.write, dry_run=options["dry_run"], groups=groups, only=only)
        except (UnreadableSource, WrongChoice) as error:
            raise CommandError(str(error)) from error
