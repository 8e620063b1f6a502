from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import User
from accounts.second_factors.services import reset
from core.errors import ProductError


class Command(BaseCommand):
    help = "Removes the second factors of a person who has lost all of them, such as the only administrator."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", help="user name")
        parser.add_argument("--remove", action="store_true", required=True, help="remove them, and end all sessions")

    def handle(self, *args: Any, **options: Any) -> None:
        person = User.objects.filter(username=options["user"]).first()
        if person is None:
            raise CommandError(f"There is no user “{options['user']}”.")
        try:
            reset(user=None, person=person)
        except ProductError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(f"{person} now signs in with the password alone.")
