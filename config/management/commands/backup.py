from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config.backup.postgres import BackupRefused
from config.backup.services import back_up


class Command(BaseCommand):
    help = (
        "Writes a backup into a directory: the rows at one moment, the objects of the storage, and fingerprints of the "
        "keys, but not the keys. A further backup into the same directory copies only new objects."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type=Path, help="directory of the backup")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            back_up(options["path"], self.stdout.write)
        except BackupRefused as error:
            raise CommandError(str(error)) from error
        except PermissionError as error:
            sentence = f"{error.filename} cannot be written, or its mode cannot be changed: {error.strerror}."
            raise CommandError(f"{sentence} Run the command as its owner, or name another directory.") from error
