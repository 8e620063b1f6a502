from datetime import datetime, time, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from accounts.models import ApiToken, User
from accounts.services import create_token, default_expiry
from core.errors import ProductError


class Command(BaseCommand):
    help = "Prints a new API token for a user. It is shown once and stored only as a hash."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", help="user name")
        scopes = f"some of: {' '.join(ApiToken.SCOPES)}; default: all except system and admin"
        parser.add_argument("--scopes", nargs="+", metavar="SCOPE", help=scopes)
        when = "days from now, or a date or time such as 2030-01-31, or never; default: 90 days from now"
        parser.add_argument("--expires", metavar="WHEN", help=when)
        parser.add_argument("--name", default="command line")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"There is no user “{options['user']}”.")
        expires = parse_expiry(options["expires"], user) if options["expires"] else default_expiry()
        try:
            _, token = create_token(user=user, name=options["name"], scopes=options["scopes"], expires=expires)
        except ProductError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(token)


def parse_expiry(text: str, user: User) -> datetime | None:
    """Parse an expiry time; None for `never`. Raises `CommandError`.

    Dates and times without a zone are in the user's time zone. With a date, the token expires when that day begins.
    """
    if text == "never":
        return None
    try:
        if text.isascii() and text.isdecimal():
            return timezone.now() + timedelta(days=int(text))
        date = parse_date(text)
        when = datetime.combine(date, time()) if date else parse_datetime(text)
    except (ValueError, OverflowError):
        when = None
    if when is None:
        raise CommandError(f"“{text}” is neither a number of days nor a date or time such as 2030-01-31.")
    return when if timezone.is_aware(when) else when.replace(tzinfo=user.zone)
