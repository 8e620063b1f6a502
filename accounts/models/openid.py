"""OpenID Connect providers, and the identities of users at them."""

from typing import Any, ClassVar

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.utils.translation import gettext
from uuid_utils.compat import uuid7

from core.crypto import EncryptedTextField
from core.net.url_safety import is_http


def validate_issuer(url: str) -> None:
    if not is_http(url) or "?" in url or "#" in url or "@" in url:
        raise ValidationError(gettext("Begin with https:// and a host, as in https://id.example.org/realms/team."))


class OpenIDProvider(models.Model):
    """An OpenID provider. `issuer` is the provider's issuer identifier, verbatim.

    `only`: while such a provider is enabled, users can sign in only through providers. Administrators can still use
    their passwords.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(
        max_length=60, unique=True, help_text="The text of the button on the sign-in page: “Sign in with …”."
    )
    issuer = models.CharField(
        max_length=300,
        unique=True,
        validators=[validate_issuer],
        help_text="The provider's own address, such as https://id.example.org/realms/team.",
    )
    client_id = models.CharField("client id", max_length=300)
    client_secret = EncryptedTextField("client secret", blank=True, default="")
    enabled = models.BooleanField(default=True)
    groups_claim = models.CharField(
        "groups claim",
        max_length=100,
        blank=True,
        default="groups",
        help_text="The claim that lists a person's groups. Empty: the provider's groups are ignored.",
    )
    admin_group = models.CharField(
        "group of administrators",
        max_length=200,
        blank=True,
        help_text=(
            "Members of this group of the provider become superusers. It is checked at each sign-in. Empty: nobody."
        ),
    )
    creates_accounts = models.BooleanField(
        "new people get an account",
        default=True,
        help_text="Off: only people who are known, or who are matched by their e-mail address, can sign in.",
    )
    matches_email = models.BooleanField(
        "match accounts by e-mail",
        default=False,
        help_text=(
            "The first person who signs in with a verified e-mail address gets the "
            "account with this address. Use it only with a provider that verifies "
            "addresses."
        ),
    )
    only = models.BooleanField(
        "in the place of passwords",
        default=False,
        help_text="Only administrators can sign in with a password or passkey, at /admin/.",
    )
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["name"]
        verbose_name = "OpenID provider"

    def __str__(self) -> str:
        return self.name


class OpenIDIdentityQuerySet(models.QuerySet["OpenIDIdentity"]):
    def visible_to(self, user: Any) -> "OpenIDIdentityQuerySet":
        return self.filter(user_id=user.pk)


class OpenIDIdentity(models.Model):
    """The identity `subject` of a user at a provider. It outlives the provider's row, which may be created again.

    `made_admin`: the user is a superuser because of a group at the provider, until they leave that group.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="openid_identities")
    issuer = models.CharField(max_length=300)
    subject = models.CharField(max_length=255)
    made_admin = models.BooleanField(default=False)
    created = models.DateTimeField(auto_now_add=True)

    objects = OpenIDIdentityQuerySet.as_manager()

    class Meta:
        verbose_name = "identity at an OpenID provider"
        verbose_name_plural = "identities at OpenID providers"
        constraints: ClassVar = [models.UniqueConstraint(fields=["issuer", "subject"], name="one_identity_per_subject")]

    def __str__(self) -> str:
        return f"{self.issuer} {self.subject}"
