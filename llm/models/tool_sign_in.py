"""Define the rows of sign-ins at tool servers (OAuth 2.1): the workspace's clients, begun sign-ins, and grants."""

from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Value
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7

from core.crypto import EncryptedTextField, is_lost
from llm.models.provider import ToolServer

MAX_ADDRESS = 2_000  # characters of an address, a client's name or a scope


class ToolClient(models.Model):
    """The workspace as a client that registered itself at an authorization server. All people sign in through it.

    `scope`: the permissions for which it registered. A server may refuse a sign-in that asks for more.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tool_server = models.ForeignKey(ToolServer, on_delete=models.CASCADE, related_name="clients")
    issuer = models.CharField(max_length=MAX_ADDRESS)
    redirect_uri = models.CharField(max_length=MAX_ADDRESS)
    client_id = models.CharField(max_length=MAX_ADDRESS)
    client_secret = EncryptedTextField(blank=True, default="")
    auth_method = models.CharField(max_length=40)
    scope = models.CharField(max_length=MAX_ADDRESS, blank=True, default="")
    secret_expires = models.DateTimeField(null=True)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tool_server", "issuer", "redirect_uri"], name="one_client_per_authorization_server"
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)


class PersonsTool(models.Model):
    """One person at one tool server, and the values for requests to the authorization server.

    `address`: the tool server's address at the sign-in. The tokens are sent only there. `resource`: the parameter of
    RFC 8707; empty if the tool server publishes no metadata. `auth_method`: how the client authenticates at
    `token_endpoint`.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    tool_server = models.ForeignKey(ToolServer, on_delete=models.CASCADE, related_name="%(class)ss")
    address = models.CharField(max_length=MAX_ADDRESS)
    issuer = models.CharField(max_length=MAX_ADDRESS)
    token_endpoint = models.CharField(max_length=MAX_ADDRESS)
    revocation_endpoint = models.CharField(max_length=MAX_ADDRESS, blank=True, default="")
    resource = models.CharField(max_length=MAX_ADDRESS, blank=True, default="")
    scope = models.CharField(max_length=MAX_ADDRESS, blank=True, default="")
    client_id = models.CharField(max_length=MAX_ADDRESS)
    client_secret = EncryptedTextField(blank=True, default="")
    auth_method = models.CharField(max_length=40)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.user)


class ToolSignInQuerySet(models.QuerySet["ToolSignIn"]):
    def visible_to(self, user: Any) -> "ToolSignInQuerySet":
        return self.filter(user_id=user.pk)


class ToolSignIn(PersonsTool):
    """A sign-in that has begun. It is deleted when the browser returns, so a state works once.

    `state` and `session` are SHA-256 digests. `session`: the digest of the key of the browser's session; empty for a
    sign-in that a program began. `then`: the page to open afterwards. `iss_required`: the answer must name the issuer
    (RFC 9207).
    """

    state = models.CharField(max_length=64, unique=True)
    session = models.CharField(max_length=64, blank=True, default="")
    verifier = EncryptedTextField()
    redirect_uri = models.CharField(max_length=MAX_ADDRESS)
    then = models.CharField(max_length=MAX_ADDRESS, blank=True, default="")
    iss_required = models.BooleanField(default=False)

    objects = ToolSignInQuerySet.as_manager()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["user", "created"], name="tool_sign_in_of_user")]


class ToolGrantQuerySet(models.QuerySet["ToolGrant"]):
    def visible_to(self, user: Any) -> "ToolGrantQuerySet":
        return self.filter(user_id=user.pk)


class ToolGrant(PersonsTool):
    """A person's access to a tool server.

    `version`: the number of refreshes. `refreshing`: the time at which a process began to refresh the tokens. `ended`:
    the reason why the tokens no longer work; the row stays so that the person reads it. `missing_scope`: the scope that
    the server demands for a call that it refused. `tools` and `problems`: the last listing for this person, as in
    `ToolServer`.
    """

    class End(models.TextChoices):
        EXPIRED = "expired", _("The sign-in has expired.")
        REVOKED = "revoked", _("The server has ended the sign-in.")

    access_token = EncryptedTextField()
    refresh_token = EncryptedTextField(blank=True, default="")
    expires = models.DateTimeField(null=True)
    version = models.PositiveIntegerField(default=0)
    refreshing = models.DateTimeField(null=True)
    ended = models.CharField(max_length=10, choices=End, blank=True, default="")
    missing_scope = models.CharField(max_length=MAX_ADDRESS, blank=True, default="")
    last_used = models.DateTimeField(null=True)
    tools: "models.JSONField[Any, Any]" = models.JSONField(null=True)
    problems: "models.JSONField[Any, Any]" = models.JSONField(default=list, db_default=Value([], models.JSONField()))

    objects = ToolGrantQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "tool_server"], name="one_tool_grant_per_person"),
        ]

    @property
    def usable(self) -> bool:
        """Return whether the tokens may still work. The server decides it at each request."""
        return not self.ended and not self.lost

    @property
    def lost(self) -> bool:
        return any(map(is_lost, (self.access_token, self.refresh_token, self.client_secret)))
