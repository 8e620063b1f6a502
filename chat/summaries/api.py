"""`/api/v1/`: summaries of conversations, for programs."""

from typing import ClassVar

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.api_views import ScopedView
from chat.context.summary import SECTION_SHARES
from chat.models import Conversation, Summary, SummaryJob
from chat.models.summary import in_force
from chat.summaries import services as summary_services
from chat.summaries.headings import SummarySection
from core.api.actions import post_action
from core.api.fields import SentenceField, StrictSerializer, validate
from core.api.pagination import pages
from core.errors import NotFound
from core.requests import identifier

MAX_SECTIONS = 2 * len(SECTION_SHARES)  # for a repeated name, the last section counts


class SectionSerializer(StrictSerializer):
    name = serializers.ChoiceField(choices=list(SECTION_SHARES))
    text = serializers.CharField(max_length=summary_services.MAX_SECTION, allow_blank=True)


class SummarySerializer(serializers.ModelSerializer[Summary]):
    sections = SectionSerializer(many=True)
    shortened = serializers.ListField(
        child=serializers.UUIDField(), help_text="Messages that were too long to be read completely."
    )

    class Meta:
        model = Summary
        fields: ClassVar = [
            *("id", "conversation", "leaf", "first", "last", "messages", "span_start", "span_end", "sections"),
            *("shortened", "tokens_in", "tokens_out", "as_of", "timezone", "model_name", "author", "prompt_version"),
            *("supersedes", "withdrawn", "created"),
        ]
        read_only_fields: ClassVar = [name for name in fields if name != "sections"]


class SectionsSerializer(StrictSerializer):
    sections = SectionSerializer(many=True, max_length=MAX_SECTIONS)  # type: ignore[call-arg]  # of the list, which the stubs do not know


class SummaryJobSerializer(serializers.ModelSerializer[SummaryJob]):
    detail = SentenceField()

    class Meta:
        model = SummaryJob
        fields: ClassVar = ["id", "conversation", "reason", "target", "status", "code", "detail", "created", "finished"]


@extend_schema_view(
    list=extend_schema(
        parameters=[
            OpenApiParameter("conversation", OpenApiTypes.UUID, description=("Only summaries of this conversation."))
        ]
    )
)
class SummaryViewSet(ScopedView, viewsets.ReadOnlyModelViewSet[Summary]):
    """Versions of summaries, including versions that are no longer used."""

    serializer_class = SummarySerializer
    pagination_class = pages("-id")
    queryset = Summary.objects.none()

    def get_queryset(self) -> QuerySet[Summary]:
        rows = Summary.objects.visible_to(self.request.user)
        conversation = self.request.query_params.get("conversation")
        if conversation:
            return rows.filter(conversation=identifier(conversation, "conversation"))
        return rows.exclude(conversation__origin=Conversation.Origin.TEMPORARY) if self.action == "list" else rows

    @post_action(SummarySerializer, SectionsSerializer, status=201)
    def edit(self, summary: Summary, sections: list[SummarySection]) -> Summary:
        """Store a corrected summary, which replaces this one."""
        return summary_services.edit_summary(user=self.person, summary=summary, sections=sections)

    @post_action(SummaryJobSerializer, status=202)
    def rebuild(self, summary: Summary) -> SummaryJob:
        """Write the summary again from the messages themselves."""
        return summary_services.rebuild_summary(user=self.person, summary=summary)

    @extend_schema(request=None, responses={204: None})
    @action(detail=True, methods=["post"])
    def undo(self, request: Request, pk: str) -> Response:
        """Remove the summary from prompts. Its messages are sent in full again, and no automatic summaries follow."""
        summary_services.undo_summary(user=self.person, summary=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


class ConversationSummaryView(ScopedView):
    @extend_schema(responses=SummarySerializer)
    def get(self, request: Request, pk: str) -> Response:
        """Return the summary that applies to the current branch."""
        conversation = get_object_or_404(Conversation.objects.visible_to(self.person), pk=pk)
        summary = in_force(conversation.pk, conversation.leaf_id)
        if summary is None:
            raise NotFound("summary")
        return Response(SummarySerializer(summary).data)


class SummariseSerializer(StrictSerializer):
    model = serializers.UUIDField(
        required=False,
        allow_null=True,
        help_text=("The model whose window they must fit; default: the model of the newest answer."),
    )


class SummariseView(ScopedView):
    @extend_schema(request=SummariseSerializer, responses={202: SummaryJobSerializer})
    def post(self, request: Request, pk: str) -> Response:
        """Summarise all messages except the newest now, and allow automatic summaries."""
        conversation = get_object_or_404(Conversation.objects.visible_to(self.person), pk=pk)
        model = validate(SummariseSerializer, request).get("model")
        job = summary_services.summarise_now(user=self.person, conversation=conversation, model=model)
        return Response(SummaryJobSerializer(job).data, status=status.HTTP_202_ACCEPTED)
