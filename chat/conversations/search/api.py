"""`/api/v1/search/`: everything that was said, for programs."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from accounts.access.permissions import ScopedView
from chat.conversations.search import messages as message_search
from chat.conversations.search.messages import Hit
from chat.models import Message
from core.lookups import identifier


class MessageHitSerializer(serializers.Serializer[Any]):
    message = serializers.UUIDField()
    conversation = serializers.UUIDField()
    title = serializers.CharField(help_text="Of the conversation.")
    role = serializers.ChoiceField(choices=Message.Role.choices)
    created = serializers.DateTimeField()
    text = serializers.CharField(help_text="The place of the first match.")
    highlights = serializers.ListField(
        child=serializers.ListField(child=serializers.IntegerField(), min_length=2, max_length=2),
        help_text="Characters [start, end) of `text` that match.",
    )


class MessageHitsSerializer(serializers.Serializer[Any]):
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True, help_text="Always null: pages lead from new to old.")
    results = MessageHitSerializer(many=True)


class SearchView(ScopedView):
    @extend_schema(
        responses=MessageHitsSerializer,
        parameters=[
            OpenApiParameter("q", str, required=True, description="Words; each may be the beginning of one."),
            OpenApiParameter("after", OpenApiTypes.UUID, description="From the link `next`."),
        ],
    )
    def get(self, request: Request) -> Response:
        """Messages with all words of the query, newest first. Case and accents do not matter."""
        after = request.query_params.get("after")
        found = message_search.search(
            user=self.person,
            query=request.query_params.get("q", ""),
            after=identifier(after, "page") if after else None,
        )
        following = replace_query_param(request.build_absolute_uri(), "after", str(found.after))
        body = {"next": following if found.after else None, "previous": None, "results": map(_shown, found.hits)}
        return Response(MessageHitsSerializer(body).data)


def _shown(hit: Hit) -> dict[str, Any]:
    text, spans = "", []
    for piece, matched in hit.pieces:
        if matched:
            spans.append([len(text), len(text) + len(piece)])
        text += piece
    message = hit.message
    return {
        "message": message.pk,
        "conversation": message.conversation_id,
        "title": message.conversation.title,
        "role": message.role,
        "created": message.created,
        "text": text,
        "highlights": spans,
    }
