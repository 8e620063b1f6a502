"""Let programs approve or refuse tool calls, and list and delete remembered decisions.

The paths are `/api/v1/turns/<id>/approvals/` and `/api/v1/conversations/<id>/permissions/`. The docstrings of views and
serializers are part of the API's documentation.
"""

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import generics, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.api_views import ScopedView
from chat.api.conversations import TurnSerializer
from chat.models import ToolPermission
from chat.models.conversation_state import visible_conversation, visible_turn
from chat.turns.services import decide_call, forget_permission
from core.api.fields import StrictSerializer, validate
from core.api.pagination import OldestFirst
from core.sentences import Sentence
from llm.types.forms import MAX_FIELDS


@extend_schema_field({"type": "object", "additionalProperties": {}, "maxProperties": MAX_FIELDS})
class FormContentField(serializers.DictField):
    """The values of a form. `llm.types.forms.checked_content` checks them against its fields."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if isinstance(data, dict) and len(data) > MAX_FIELDS:
            message = Sentence("Send at most {most} values, one for each field of the form.", most=MAX_FIELDS)
            raise serializers.ValidationError(str(message))
        content: dict[str, Any] = super().to_internal_value(data)
        return content


class ApprovalSerializer(StrictSerializer):
    call = serializers.CharField(max_length=1_000, help_text="The id of the tool call.")
    allow = serializers.BooleanField()
    remember = serializers.BooleanField(
        default=False,
        help_text="Apply the decision to later calls in this conversation: to the same host if the call opens an "
        "address, else to the same tool.",
    )
    content = FormContentField(default=dict, help_text="Only if the call has a `form`: its values, by field name.")


class PermissionSerializer(serializers.ModelSerializer[ToolPermission]):
    host = serializers.CharField(help_text="The host of the addresses that the tool opens; empty for the whole tool.")
    allowed = serializers.BooleanField(help_text="False: refused in this conversation.")

    class Meta:
        model = ToolPermission
        fields: ClassVar = ["id", "tool", "host", "allowed", "created"]


class PermissionsView(ScopedView, generics.ListAPIView[ToolPermission]):
    """The remembered decisions about tool calls, oldest first."""

    serializer_class = PermissionSerializer
    pagination_class = OldestFirst

    def get_queryset(self) -> QuerySet[ToolPermission]:
        if getattr(self, "swagger_fake_view", False):
            return ToolPermission.objects.none()
        return ToolPermission.objects.filter(conversation=visible_conversation(self.person, self.kwargs["pk"]))


class PermissionView(ScopedView):
    @extend_schema(responses={204: None})
    def delete(self, request: Request, pk: str, permission: str) -> Response:
        """Delete a remembered decision. The user is asked again at the next such call."""
        forget_permission(user=self.person, conversation=visible_conversation(self.person, pk), pk=permission)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ApprovalView(ScopedView):
    @extend_schema(request=ApprovalSerializer, responses={202: TurnSerializer})
    def post(self, request: Request, pk: str) -> Response:
        """Allow or refuse a tool call that waits for a decision (the `approval` of its part is “waiting”).

        If its part has a `form`, the tool asks for values: send them as `content`.
        """
        turn = visible_turn(self.person, pk)
        body = validate(ApprovalSerializer, request)
        decide_call(
            user=self.person,
            turn=turn,
            call=body["call"],
            allow=body["allow"],
            remember=body["remember"],
            content=body["content"],
        )
        return Response(TurnSerializer(turn).data, status=status.HTTP_202_ACCEPTED)
