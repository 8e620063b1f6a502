import argparse
from pathlib import Path
from typing import Any, cast

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Field
from django.urls import reverse

from accounts.models import OpenIDProvider
from accounts.openid.reading import read
from accounts.openid.services import store_provider
from core.errors import ProductError

SWITCHES = {
    "only": "people sign in through providers alone, administrators at /admin/ with their password as well",
    "matches_email": "who comes with a verified e-mail address gets the account with this address",
    "creates_accounts": "who has no account gets one (as it is from the beginning)",
    "enabled": "its button is on the sign-in page (as it is from the beginning)",
}
TEXTS = {
    "issuer": "the address that the provider calls itself by",
    "client_id": "what the provider knows this workspace by",
    "groups_claim": "the claim that lists groups; from the beginning: groups",
    "admin_group": "the group there whose people are superusers here",
}


class Command(BaseCommand):
    help = (
        "Creates or changes an OpenID provider by name, once it answers, and prints the addresses to be entered there. "
        "What is not named stays as it is."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="stands on the button: “Sign in with NAME”")
        for name, what in TEXTS.items():
            parser.add_argument(f"--{name.replace('_', '-')}", help=what)
        parser.add_argument("--client-secret-file", type=Path, metavar="PATH", help="holds nothing but the secret")
        for name, what in SWITCHES.items():
            parser.add_argument(f"--{name.replace('_', '-')}", action=argparse.BooleanOptionalAction, help=what)

    def handle(self, *args: Any, **options: Any) -> None:
        provider = OpenIDProvider.objects.filter(name=options["name"]).first() or OpenIDProvider(name=options["name"])
        for name in (*TEXTS, *SWITCHES):
            if options[name] is not None:
                cast("Field[Any, Any]", provider._meta.get_field(name)).save_form_data(provider, options[name])
        if not provider.issuer or not provider.client_id:
            raise CommandError("Give --issuer and --client-id: there is no provider of this name yet.")
        secret = _secret(options["client_secret_file"])
        try:
            report = read(provider)
            store_provider(user=None, provider=provider, secret=secret)
        except ProductError as error:
            raise CommandError(f"Nothing is stored. {error.detail}") from error
        self.stdout.write(report.sentence.english)
        self.stdout.write(f"Redirect address: {address('login-openid-done', provider)}")
        self.stdout.write(f"Back-channel logout: {address('openid-sign-out', provider)}")


def address(name: str, provider: OpenIDProvider) -> str:
    """Return the absolute address of a page. A placeholder stands for the host if the workspace has no address set."""
    origin = settings.CSRF_TRUSTED_ORIGINS[0] if settings.CSRF_TRUSTED_ORIGINS else "<address of the workspace>"
    return origin.rstrip("/") + reverse(name, args=[provider.pk])


def _secret(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"The file {path} cannot be read: {error}") from error
