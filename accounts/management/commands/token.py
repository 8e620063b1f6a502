from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import ApiToken, User
from accounts.services import create_token
from llm.errors import ProductError


class Command(BaseCommand):
    help = "Prints a new API token for a user. It is shown once and stored only as a hash."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", help="user name")
        parser.add_argument("--scopes", nargs="+", metavar="SCOPE", help=f"some of: {' '.join(ApiToken.SCOPES)}")
        parser.add_argument("--name", default="command line")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"There is no user “{options['user']}”.")
        try:
            _, token = create_token(user=user, name=options["name"], scopes=options["scopes"])
        except ProductError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(token)
