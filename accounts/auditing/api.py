"""`/api/v1/audit/`: acts and who did them, for programs of administrators."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.api_views import ScopedView
from core.api.fields import validate
from core.api.pagination import pages
from core.audit.models import Entry
from core.audit.reading import FIELDS, AuditFilter
from core.errors import ProductError
from core.permissions import require_right
from core.sentences import Sentence


class AuditQuerySerializer(serializers.Serializer[AuditFilter]):
    since = serializers.DateTimeField(required=False, help_text="Acts of this moment and later.")
    until = serializers.DateTimeField(required=False, help_text="Acts before this moment.")
    after = serializers.IntegerField(
        required=False, help_text="Acts with a greater `sequence`: the acts after the last one that you read."
    )
    actor = serializers.CharField(required=False, help_text="The id or the user name of the actor.")
    action = serializers.CharField(
        required=False, help_text=("An action such as token.made, or a beginning such as token.")
    )


class ActSerializer(serializers.ModelSerializer[Entry]):
    changes = serializers.DictField(
        read_only=True,
        help_text="By field: [before, after], or null for a text or a secret. For acts that change no field: facts.",
    )

    class Meta:
        model = Entry
        fields = FIELDS
        read_only_fields = FIELDS


class AuditView(ScopedView, ListAPIView[Entry]):
    scope = "admin"
    serializer_class = ActSerializer
    pagination_class = pages("-sequence")

    def get_queryset(self) -> QuerySet[Entry]:
        require_right(self.person, "view", Entry)
        query = validate(AuditQuerySerializer, self.request, self.request.query_params)
        chosen = AuditFilter(
            since=query.get("since"),
            until=query.get("until"),
            after=query.get("after"),
            actor=query.get("actor", ""),
            action=query.get("action", ""),
        )
        try:
            return chosen.rows()
        except LookupError as error:
            sentence = Sentence(
                "There is no act “{args}”. Name an act such as token.made, or the part before its dot.",
                args=error.args[0],
            )
            raise ProductError("unknown_action", sentence) from error

    @extend_schema(parameters=[AuditQuerySerializer])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return the acts, newest first. For administrators who may see the audit."""
        return super().get(request, *args, **kwargs)
