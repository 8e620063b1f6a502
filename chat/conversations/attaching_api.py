"""Attach past conversations, for programs: the body and the response of `…/as-file/`."""

from typing import cast, get_args

from rest_framework import serializers, status
from rest_framework.response import Response

from accounts.models import User
from chat.conversations.attaching import AttachableConversation, AttachedConversation, AttachedForm, Draft, attach
from chat.conversations.services import visible_model
from chat.models import Conversation
from chat.models.conversation_state import ChatScope, scope_of
from core.api.fields import StrictSerializer, VisibleField
from core.json_types import JsonObject
from personas.services import model_for


class AttachSerializer(StrictSerializer):
    """The message that the file will go along with. It decides how much of the conversation fits."""

    conversation = VisibleField(
        Conversation, required=False, allow_null=True, help_text="The conversation of the message; none for a new one."
    )
    model = serializers.UUIDField(required=False, allow_null=True, help_text="The model that will answer.")
    text = serializers.CharField(
        max_length=1_000_000, trim_whitespace=False, allow_blank=True, default="", help_text="The text of the message."
    )
    files = serializers.ListField(child=serializers.UUIDField(), max_length=50, default=list)


class AttachedConversationSerializer(serializers.Serializer[AttachedConversation]):
    file = serializers.UUIDField(source="file.pk", help_text="Send it in `files`, once it is read.")
    name = serializers.CharField(source="file.name")
    form = serializers.ChoiceField(choices=get_args(AttachedForm))
    messages = serializers.IntegerField(help_text="Messages that the file has word for word.")
    total = serializers.IntegerField(help_text="Messages of the branch.")


def attached_response(user: User, source: AttachableConversation, body: JsonObject) -> Response:
    """Attach the conversation, and return the response."""
    place = cast("Conversation | None", body.get("conversation"))
    scope = scope_of(place) if place is not None else ChatScope()
    model = visible_model(user, body.get("model")) or model_for(scope.persona, user)
    attached = attach(user=user, source=source, draft=Draft(scope, model, body["text"], body["files"]))
    return Response(AttachedConversationSerializer(attached).data, status=status.HTTP_201_CREATED)
