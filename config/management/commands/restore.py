from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config.backup.postgres import BackupRefused
from config.backup.services import restore


class Command(BaseCommand):
    help = (
        "Restores a backup of this version or an older one into an empty database and the storage. If it is "
        "interrupted, run it again: it continues where it stopped."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type=Path, help="directory of the backup")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            restore(options["path"], self.stdout.write)
        except BackupRefused as error:
            raise CommandError(str(error)) from error
