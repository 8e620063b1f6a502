"""`/api/v1/`: search, shares, imports and a day's messages and summaries, for programs."""

import json
from datetime import date, datetime
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.urls import reverse
from django.utils.translation import gettext
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import generics, mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.parsers import FormParser, MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from accounts.access.api_views import ScopedView
from chat.conversations import daily, import_undo, services, sharing
from chat.conversations import search as searching
from chat.conversations.importing import jobs
from chat.models import Conversation, Import, Message, Share, Summary, Tag
from chat.models.conversation_state import visible_conversation
from core.api.fields import SentenceField, StrictSerializer, VisibleField, validate_upload
from core.api.pagination import OldestFirst, pages
from core.errors import ProductError
from core.json_bodies import JSONParser
from core.requests import identifier
from files.api import UploadSerializer
from personas.models import Persona
from projects.models import Project

MAX_TAG_LENGTH = 200  # characters before blanks and “#” are stripped


class TagNames(serializers.ListField):
    """A list of tag names. The conversation itself has related rows."""

    def get_attribute(self, instance: Conversation) -> Any:
        return [tag.name for tag in instance.tags.all()]


class ConversationSerializer(StrictSerializer, serializers.ModelSerializer[Conversation]):
    persona = VisibleField(Persona, required=False, allow_null=True)
    project = VisibleField(Project, required=False, allow_null=True)
    pinned = serializers.BooleanField(required=False, help_text="Whether it is pinned above the list.")
    tags = TagNames(
        child=serializers.CharField(max_length=Tag.MAX_NAME),
        required=False,
        max_length=Tag.MAX_OF_ONE,
        help_text="Your own words. New tags are created; unused tags are deleted.",
    )

    temporary = serializers.BooleanField(
        default=False,
        help_text=(
            "Set at creation. A temporary conversation is in no list or search, and "
            "is erased when it is deleted or a day old."
        ),
    )

    class Meta:
        model = Conversation
        fields: ClassVar = [
            *("id", "title", "persona", "project", "leaf", "state", "automatic_summaries", "archived", "origin"),
            *("temporary", "pinned", "tags", "effort", "tasks_in_prompts", "memory_in_prompts", "findable"),
            *("created", "updated"),
        ]
        read_only_fields: ClassVar = ["leaf", "state", "automatic_summaries", "origin", "created", "updated"]

    def validate_temporary(self, temporary: bool) -> bool:
        if self.instance is not None and temporary != self.instance.temporary:
            raise serializers.ValidationError(gettext("Whether a conversation is temporary is set when it is created."))
        return temporary

    def to_representation(self, instance: Conversation) -> dict[str, Any]:
        shown = super().to_representation(instance)
        return {**shown, "pinned": instance.pinned is not None}


class MessageHitSerializer(serializers.Serializer[searching.MessageHit]):
    message = serializers.UUIDField(source="message.pk")
    conversation = serializers.UUIDField(source="message.conversation_id")
    title = serializers.CharField(source="message.conversation.title", help_text="Of the conversation.")
    role = serializers.ChoiceField(source="message.role", choices=Message.Role.choices)
    created = serializers.DateTimeField(source="message.created")
    text = serializers.CharField(help_text="The text around the first match.")
    highlights = serializers.ListField(
        child=serializers.ListField(child=serializers.IntegerField(), min_length=2, max_length=2),
        help_text="Characters [start, end) of `text` that match.",
    )


class MessageHitsSerializer(serializers.Serializer[Any]):
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True, help_text="Always null: pages go from new to old.")
    results = MessageHitSerializer(many=True)
    characters_read = serializers.IntegerField(
        help_text="Characters of each message that are searched, from its beginning."
    )


class SearchView(ScopedView):
    @extend_schema(
        responses=MessageHitsSerializer,
        parameters=[
            OpenApiParameter("q", str, required=True, description="Words or beginnings of words."),
            OpenApiParameter("tag", str, description="Only in conversations with this tag."),
            OpenApiParameter("after", OpenApiTypes.UUID, description="From the link `next`."),
        ],
    )
    def get(self, request: Request) -> Response:
        """Return messages that have all words of the query, newest first. Case and accents do not matter."""
        after = request.query_params.get("after")
        page = searching.search(
            user=self.person,
            query=request.query_params.get("q", ""),
            after=identifier(after, "page") if after else None,
            tag=request.query_params.get("tag", ""),
        )
        following = replace_query_param(request.build_absolute_uri(), "after", str(page.after))
        body = {
            "next": following if page.after else None,
            "previous": None,
            "results": page.hits,
            "characters_read": searching.CHARACTERS_READ,
        }
        return Response(MessageHitsSerializer(body).data)


class ShareSerializer(serializers.ModelSerializer[Share]):
    url = serializers.SerializerMethodField()
    expired = serializers.BooleanField(read_only=True)
    has_password = serializers.BooleanField(read_only=True)

    class Meta:
        model = Share
        fields = (
            *("id", "conversation", "leaf", "title", "url", "expires", "expired", "has_password"),
            *("shows_context", "names_sources", "created"),
        )
        read_only_fields = fields

    @extend_schema_field(serializers.URLField())
    def get_url(self, share: Share) -> str:
        path = reverse("chat:shared", args=[share.token])
        return str(self.context["request"].build_absolute_uri(path))


class TermsSerializer(StrictSerializer):
    """Terms of a link. Without a body, everyone who has the link may open it."""

    password = serializers.CharField(
        default="", allow_blank=True, max_length=200, trim_whitespace=False, help_text="At least 8 characters."
    )
    expires = serializers.DateTimeField(default=None, allow_null=True, help_text="Null: never.")
    shows_context = serializers.BooleanField(
        default=False, help_text="Readers see how many tokens of each kind the model saw, as numbers only."
    )
    names_sources = serializers.BooleanField(
        default=False, help_text="With `shows_context`: also the names of files and the arguments of tools."
    )


class ConversationSharesView(ScopedView):
    parser_classes = (JSONParser, FormParser, MultiPartParser)  # an empty POST may have any content type

    @extend_schema(responses=ShareSerializer(many=True))
    def get(self, request: Request, pk: UUID) -> Response:
        """Return the links of a conversation, newest first, at most 50."""
        rows = sharing.list_shares(self.person).filter(conversation=visible_conversation(self.person, pk))
        return Response(ShareSerializer(rows, many=True, context={"request": request}).data)

    @extend_schema(request=TermsSerializer, responses={201: ShareSerializer})
    def post(self, request: Request, pk: UUID) -> Response:
        """Create a link to the current branch as it is now. Everyone who has the link, and its password if it has one,
        may read it without signing in.
        """
        serializer = TermsSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        fields = serializer.validated_data
        terms = sharing.ShareTerms(
            password=fields["password"],
            expires=fields["expires"],
            shows_context=fields["shows_context"],
            names_sources=fields["names_sources"],
        )
        share = sharing.create_share(user=self.person, conversation=visible_conversation(self.person, pk), terms=terms)
        return Response(ShareSerializer(share, context={"request": request}).data, status=status.HTTP_201_CREATED)


class ShareViewSet(
    ScopedView,
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    mixins.DestroyModelMixin,
    viewsets.GenericViewSet[Share],
):
    """All links of the user. Deleting a link ends it."""

    serializer_class = ShareSerializer
    pagination_class = pages("-id", at_most=None)
    queryset = Share.objects.none()

    def get_queryset(self) -> QuerySet[Share]:
        return sharing.list_shares(self.person)

    def perform_destroy(self, instance: Share) -> None:
        sharing.end_share(user=self.person, share=instance)


class ChosenSerializer(StrictSerializer):
    """Changes to the chosen conversations, or `delete` or `restore`."""

    conversations = serializers.ListField(child=serializers.UUIDField(), max_length=services.MAX_CHOSEN)
    tag = serializers.ListField(
        child=serializers.CharField(max_length=MAX_TAG_LENGTH),
        max_length=Tag.MAX_COUNT,
        required=False,
        help_text="Tags to add to all of them.",
    )
    untag = serializers.ListField(
        child=serializers.CharField(max_length=MAX_TAG_LENGTH),
        max_length=Tag.MAX_COUNT,
        required=False,
        help_text="Tags to remove from all of them.",
    )
    project = VisibleField(Project, required=False, allow_null=True)
    archived = serializers.BooleanField(required=False)
    pinned = serializers.BooleanField(required=False)
    delete = serializers.BooleanField(default=False)
    restore = serializers.BooleanField(default=False, help_text="Restore deleted conversations, within 24 hours.")


class ChosenView(ScopedView):
    @extend_schema(request=ChosenSerializer, responses={204: None})
    def post(self, request: Request) -> Response:
        """Change several conversations at once: all of them, or none."""
        serializer = ChosenSerializer(data=request.data, context={"request": request})
        serializer.is_valid(raise_exception=True)
        fields = dict(serializer.validated_data)
        ids = fields.pop("conversations")
        delete = fields.pop("delete")
        restore = fields.pop("restore")
        if [bool(fields), delete, restore].count(True) != 1:
            raise ProductError("one_action", "Send fields to change, or `delete`, or `restore`: only one of these.")
        if restore:
            services.restore_conversations(user=self.person, ids=ids)
            return Response(status=status.HTTP_204_NO_CONTENT)
        rows = services.chosen_conversations(self.person, ids)
        if delete:
            services.delete_conversations(user=self.person, conversations=rows)
        else:
            services.change_conversations(user=self.person, conversations=rows, fields=fields)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ResultSerializer(serializers.Serializer[dict[str, str]]):
    title = serializers.CharField()
    outcome = serializers.ChoiceField(choices=["imported", "known", "skipped"])
    why = SentenceField()
    conversation = serializers.UUIDField(allow_null=True)


class ImportSerializer(serializers.ModelSerializer[Import]):
    results = ResultSerializer(many=True)
    error_detail = SentenceField()
    kept_until = serializers.DateTimeField(
        allow_null=True, help_text="Until when a failed or paused import can go on; null if it cannot."
    )

    class Meta:
        model = Import
        fields: ClassVar = [
            *("id", "name", "status", "progress", "imported", "known", "skipped", "results"),
            *("error_code", "error_detail", "created", "finished", "size", "kept_until"),
        ]


class ImportViewSet(ScopedView, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Import]):
    serializer_class = ImportSerializer
    pagination_class = pages("-id", size=20, at_most=None)
    parser_classes = (MultiPartParser,)
    queryset = Import.objects.none()

    def get_queryset(self) -> QuerySet[Import]:
        return Import.objects.visible_to(self.person)

    def rate(self) -> str:
        return "uploads" if self.action == "create" else super().rate()

    @extend_schema(request={"multipart/form-data": UploadSerializer}, responses={202: ImportSerializer})
    def create(self, request: Request) -> Response:
        """Import an export of Glasshouse, Open WebUI, LibreChat, ChatGPT or Claude. Poll the import until it has ended.

        Send the zip or the JSON file. `results` has an entry for each conversation, and for each list, such as personas
        and prompts.
        """
        upload = validate_upload(
            UploadSerializer, request, "Send the export as multipart/form-data in the field “file”."
        )
        job = jobs.start_import(user=self.person, name=upload.name or "", content=upload)
        return Response(self.get_serializer(job).data, status=status.HTTP_202_ACCEPTED)

    def destroy(self, request: Request, pk: str) -> Response:
        """Remove an ended import and its stored upload. The imported conversations stay."""
        jobs.remove_import(user=self.person, job=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=None, responses={202: ImportSerializer})
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, pk: str) -> Response:
        """Let a failed or paused import go on, as long as its upload is stored."""
        job = self.get_object()
        jobs.retry_import(user=self.person, job=job)
        return Response(self.get_serializer(job).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(request=None, responses={202: ImportSerializer})
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str) -> Response:
        """Pause an import. What it has imported stays; `retry` lets it go on."""
        job = self.get_object()
        jobs.pause_import(user=self.person, job=job)
        return Response(self.get_serializer(job).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(request=None, responses={202: ImportSerializer})
    @action(detail=True, methods=["post"])
    def undo(self, request: Request, pk: str) -> Response:
        """Remove everything that an ended import has made. What was continued or changed, is shared or is in use stays.

        Poll the import until its status is `undone`.
        """
        job = self.get_object()
        import_undo.undo_import(user=self.person, job=job)
        return Response(self.get_serializer(job).data, status=status.HTTP_202_ACCEPTED)


class MomentField(serializers.DateTimeField):
    """A time with its offset as digits, the original format of the daily files."""

    def to_representation(self, value: datetime) -> str:
        return value.isoformat()


class ChatEntrySerializer(serializers.Serializer[Message]):
    id = serializers.UUIDField()
    conversation = serializers.UUIDField(source="conversation_id")
    timestamp = MomentField(source="created")
    role = serializers.ChoiceField(choices=Message.Role.choices)
    content = serializers.CharField(source="text")
    model = serializers.CharField(source="model.name", allow_null=True)
    status = serializers.CharField()


class SpanSerializer(serializers.Serializer[Summary]):
    start = MomentField(source="span_start")
    end = MomentField(source="span_end")


class CoversSerializer(serializers.Serializer[Summary]):
    first = serializers.UUIDField(source="first_id")
    last = serializers.UUIDField(source="last_id")
    messages = serializers.IntegerField()


class TokensSerializer(serializers.Serializer[Summary]):
    before = serializers.IntegerField(source="tokens_in")
    after = serializers.IntegerField(source="tokens_out")


class DailySectionSerializer(serializers.Serializer[dict[str, str]]):
    name = serializers.CharField()
    text = serializers.CharField()


class SummaryEntrySerializer(serializers.Serializer[Summary]):
    id = serializers.UUIDField()
    conversation = serializers.UUIDField(source="conversation_id")
    timestamp = MomentField(source="created")
    span = SpanSerializer(source="*", help_text="The times of the first and the last message that it covers.")
    covers = CoversSerializer(source="*")
    sections = DailySectionSerializer(many=True)
    tokens = TokensSerializer(source="*")
    model = serializers.CharField(source="model_name", allow_null=True)
    prompt_version = serializers.IntegerField()
    supersedes = serializers.UUIDField(source="supersedes_id", allow_null=True)
    withdrawn = MomentField(allow_null=True)

    def to_representation(self, instance: Summary) -> dict[str, Any]:
        return {**super().to_representation(instance), "model": instance.model_name or None}


class DailyChatView(ScopedView, generics.ListAPIView[Message]):
    """The messages of a day in the user's time zone, oldest first."""

    serializer_class = ChatEntrySerializer
    pagination_class = OldestFirst
    queryset = Message.objects.none()

    def get_queryset(self) -> QuerySet[Message]:
        return daily.find_messages(self.person, self.kwargs["day"])


class DailySummaryView(ScopedView, generics.ListAPIView[Summary]):
    """The summaries written on a day in the user's time zone, oldest first."""

    serializer_class = SummaryEntrySerializer
    pagination_class = OldestFirst
    queryset = Summary.objects.none()

    def get_queryset(self) -> QuerySet[Summary]:
        return daily.find_summaries(self.person, self.kwargs["day"])


def _file(name: str, entry: serializers.Serializer[Any], rows: QuerySet[Any]) -> StreamingHttpResponse:
    texts = (json.dumps(entry.to_representation(row), ensure_ascii=False) for row in rows.iterator(200))
    response = StreamingHttpResponse(daily.join_as_json_list(texts), content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


class DailyChatFileView(ScopedView):
    @extend_schema(operation_id="daily_chat_file", responses=ChatEntrySerializer(many=True))
    def get(self, request: Request, day: date) -> StreamingHttpResponse:
        """Return all messages of the day in one file, with the fields of `daily/<date>/chat/`."""
        rows = daily.find_messages(self.person, day).order_by("created", "id")
        return _file("Daily_chat.json", ChatEntrySerializer(), rows)


class DailySummaryFileView(ScopedView):
    @extend_schema(operation_id="daily_summary_file", responses=SummaryEntrySerializer(many=True))
    def get(self, request: Request, day: date) -> StreamingHttpResponse:
        """Return all summaries of the day in one file, with the fields of `daily/<date>/summary/`."""
        rows = daily.find_summaries(self.person, day).order_by("created", "id")
        return _file("Daily_summary.json", SummaryEntrySerializer(), rows)
