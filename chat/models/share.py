"""Links under which anybody may read a conversation as it was."""

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
        """By whoever has the link, and its password where it has one, while the workspace has links."""
        off = models.Exists(Workspace.objects.filter(sharing=False))
        open_ = Q(expires=None) | Q(expires__gt=timezone.now())
        there = Q(conversation__deleted=None, leaf__deleted=None)
        return self.filter(~off, open_, there, conversation__owner__is_active=True)


class Share(models.Model):
    """The branch that ended at `leaf` when the link was made. What is written later is not in it: messages never
    change, so the leaf is a snapshot. Deleting one of its messages ends the link, until that is taken back.

    The token is kept as it is, so that its owner can copy the link again: who can read this table can read the
    messages beside it, so a hash would hide nothing from them. A password is one that people choose, so it is hashed.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    conversation = models.ForeignKey("chat.Conversation", on_delete=models.CASCADE, related_name="shares")
    leaf = models.ForeignKey("chat.Message", on_delete=models.CASCADE, related_name="shares")
    title = models.CharField(max_length=200, blank=True, help_text="Of the conversation at that time.")
    token = models.CharField(max_length=64, unique=True, default=new_token, editable=False)
    password = models.CharField(max_length=128, blank=True, default="", db_default="", editable=False)
    expires = models.DateTimeField(null=True, blank=True, help_text="From then on it leads nowhere; empty: never.")
    shows_context = models.BooleanField(
        default=False,
        db_default=False,
        help_text="With each answer goes how much its model saw, and of which kinds; no names and no texts.",
    )
    names_sources = models.BooleanField(
        default=False,
        db_default=False,
        help_text="With `shows_context`: the names of the files, and what tools were asked for, go along too.",
    )
    characters = models.PositiveBigIntegerField(
        default=0, db_default=0, editable=False, help_text="Of what can be read by it; 0 of a link from before this."
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
