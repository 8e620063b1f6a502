import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import User
from core.errors import ProductError
from workspace.administration.erasing import erase_person

STOP_TIMEOUT = 60.0  # seconds to wait until running answers have stopped


class Command(BaseCommand):
    help = (
        "Erases a person's account and everything that they own, in the database, the storage and Redis. The audit "
        "keeps their acts, by id. This cannot be undone. Before, hand over the items that must stay."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", help="user name")
        parser.add_argument(
            "--yes", action="store_true", help="erase; without this option, only list what would be erased"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        person = User.objects.filter(username=options["user"]).first()
        if person is None:
            raise CommandError(f"There is no user “{options['user']}”.")
        owned = {
            "conversations": person.conversations.count(),
            "files": person.files.count(),
            "projects": person.projects.count(),
            "personas": person.personas.count(),
            "tasks": person.tasks.count(),
        }
        listed = ", ".join(f"{number} {kind}" for kind, number in owned.items())
        if not options["yes"]:
            self.stdout.write(
                f"This would erase “{person}” with {listed}. Repeat the command with --yes to erase them."
            )
            return
        deadline = time.monotonic() + STOP_TIMEOUT
        while True:
            try:
                erase_person(user=None, person=person)
                break
            except ProductError as error:
                if error.code != "still_answering" or time.monotonic() > deadline:
                    raise CommandError(error.detail) from error
                time.sleep(0.5)
        self.stdout.write(f"Erased, with {listed}.")
