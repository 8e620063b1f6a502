"""Links through which anybody may read a snapshot of a conversation."""

import secrets
from typing import ClassVar, Self

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.db.models import Q
from django.utils import timezone
from uuid_utils.compat import uuid7

from chat.models.conversation import OfConversation
from workspace.models import Workspace


def new_token() -> str:
    return secrets.token_urlsafe(32)  # 256 bits


class ShareQuerySet(OfConversation["Share"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> Self:
        return super().visible_to(user).filter(leaf__deleted=None)

    def readable(self) -> "ShareQuerySet":
        """Return the shares that a reader can open with the link, and the password if one is set."""
        sharing_is_off = models.Exists(Workspace.objects.filter(sharing=False))
        not_expired = Q(expires=None) | Q(expires__gt=timezone.now())
        not_deleted = Q(conversation__deleted=None, leaf__deleted=None)
        return self.filter(~sharing_is_off, not_expired, not_deleted, conversation__owner__is_active=True)


class Share(models.Model):
    """A link to the branch that ended at `leaf` when the link was created.

    Messages never change, so the leaf identifies a snapshot without later messages. If a message of the branch is
    deleted, the link does not work until the message is restored.

    The token is stored in plain text, so that the owner can copy the link again. A hash would hide nothing from those
    who can read this table, since they can read the messages, too. The password is hashed, since a user chooses it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    conversation = models.ForeignKey("chat.Conversation", on_delete=models.CASCADE, related_name="shares")
    leaf = models.ForeignKey("chat.Message", on_delete=models.CASCADE, related_name="shares")
    title = models.CharField(max_length=200, blank=True, help_text="The conversation's title at that time.")
    token = models.CharField(max_length=64, unique=True, default=new_token, editable=False)
    password = models.CharField(max_length=128, blank=True, default="", db_default="", editable=False)
    expires = models.DateTimeField(null=True, blank=True, help_text="The link ends at this time; empty: never.")
    shows_context = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Readers see how many tokens of each kind the model saw, without names and texts.",
    )
    names_sources = models.BooleanField(
        default=False,
        db_default=False,
        help_text="With `shows_context`: also the names of files and the arguments of tools.",
    )
    characters = models.PositiveBigIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text=("Characters that can be read through it; 0 for an older link."),
    )
    created = models.DateTimeField(auto_now_add=True)

    objects = ShareQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-id"]

    def __str__(self) -> str:
        return str(self.pk)

    @property
    def has_password(self) -> bool:
        return bool(self.password)

    @property
    def expired(self) -> bool:
        return self.expires is not None and self.expires <= timezone.now()
