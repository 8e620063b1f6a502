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
    "only": "sign-in only through OpenID providers; administrators can still use passwords at /admin/",
    "matches_email": "link a sign-in to the account with the same verified e-mail address",
    "creates_accounts": "create an account at the first sign-in (default: on)",
    "enabled": "show the button on the sign-in page (default: on)",
}
TEXTS = {
    "issuer": "the provider's issuer URL",
    "client_id": "this workspace's client ID at the provider",
    "groups_claim": "the claim that lists groups (default: groups)",
    "admin_group": "the provider's group whose members become superusers",
}


class Command(BaseCommand):
    help = (
        "Creates or changes the OpenID provider with this name if it answers, and prints the addresses to enter at the "
        "provider. Options that are not given keep their values."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="the name on the button “Sign in with NAME”")
        for name, help_text in TEXTS.items():
            parser.add_argument(f"--{name.replace('_', '-')}", help=help_text)
        parser.add_argument(
            "--client-secret-file", type=Path, metavar="PATH", help="a file that contains only the secret"
        )
        for name, help_text in SWITCHES.items():
            parser.add_argument(f"--{name.replace('_', '-')}", action=argparse.BooleanOptionalAction, help=help_text)

    def handle(self, *args: Any, **options: Any) -> None:
        provider = OpenIDProvider.objects.filter(name=options["name"]).first() or OpenIDProvider(name=options["name"])
        for name in (*TEXTS, *SWITCHES):
            if options[name] is not None:
                cast("Field[Any, Any]", provider._meta.get_field(name)).save_form_data(provider, options[name])
        if not provider.issuer or not provider.client_id:
            raise CommandError("There is no provider of this name yet. Name --issuer and --client-id to create it.")
        secret = _secret(options["client_secret_file"])
        try:
            report = read(provider)
            store_provider(user=None, provider=provider, secret=secret)
        except ProductError as error:
            raise CommandError(f"Nothing was stored. {error.detail}") from error
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
