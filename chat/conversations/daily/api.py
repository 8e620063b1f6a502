"""`/api/v1/daily/<date>/`: the messages and summaries of a day, in pages and as files."""

import json
from collections.abc import Iterator
from datetime import date
from typing import Any

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request

from accounts.access.permissions import ScopedView
from chat.conversations.daily import days as daily
from chat.models import Message, Summary
from core.rest import OldestFirst


class ChatEntrySerializer(serializers.Serializer[Message]):
    id = serializers.UUIDField()
    conversation = serializers.UUIDField()
    timestamp = serializers.DateTimeField()
    role = serializers.ChoiceField(choices=Message.Role.choices)
    content = serializers.CharField()
    model = serializers.CharField(allow_null=True)
    status = serializers.CharField()

    def to_representation(self, instance: Message) -> dict[str, Any]:
        return daily.chat_entry(instance)


class SpanSerializer(serializers.Serializer[Any]):
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()


class CoversSerializer(serializers.Serializer[Any]):
    first = serializers.UUIDField()
    last = serializers.UUIDField()
    messages = serializers.IntegerField()


class TokensSerializer(serializers.Serializer[Any]):
    before = serializers.IntegerField()
    after = serializers.IntegerField()


class DailySectionSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    text = serializers.CharField()


class SummaryEntrySerializer(serializers.Serializer[Summary]):
    id = serializers.UUIDField()
    conversation = serializers.UUIDField()
    timestamp = serializers.DateTimeField()
    span = SpanSerializer(help_text="When the first and the last message it stands for were written.")
    covers = CoversSerializer()
    sections = DailySectionSerializer(many=True)
    tokens = TokensSerializer()
    model = serializers.CharField(allow_null=True)
    prompt_version = serializers.IntegerField()
    supersedes = serializers.UUIDField(allow_null=True)
    withdrawn = serializers.DateTimeField(allow_null=True)

    def to_representation(self, instance: Summary) -> dict[str, Any]:
        return daily.summary_entry(instance)


class DailyChatView(ScopedView, generics.ListAPIView[Message]):
    """What was said on a day of the person's own time zone, oldest first."""

    serializer_class = ChatEntrySerializer
    pagination_class = OldestFirst
    queryset = Message.objects.none()

    def get_queryset(self) -> QuerySet[Message]:
        return daily.messages(self.person, self.kwargs["day"])


class DailySummaryView(ScopedView, generics.ListAPIView[Summary]):
    """The summaries written on a day of the person's own time zone, oldest first."""

    serializer_class = SummaryEntrySerializer
    pagination_class = OldestFirst
    queryset = Summary.objects.none()

    def get_queryset(self) -> QuerySet[Summary]:
        return daily.summaries(self.person, self.kwargs["day"])


def _file(name: str, entries: Iterator[dict[str, Any]]) -> StreamingHttpResponse:
    texts = (json.dumps(entry, ensure_ascii=False) for entry in entries)
    response = StreamingHttpResponse(daily.listed(texts), content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


class DailyChatFileView(ScopedView):
    @extend_schema(operation_id="daily_chat_file", responses=ChatEntrySerializer(many=True))
    def get(self, request: Request, day: date) -> StreamingHttpResponse:
        """All messages of the day in one file, as `daily/<date>/chat/` lists them."""
        rows = daily.messages(self.person, day).order_by("created", "id")
        return _file("Daily_chat.json", (daily.chat_entry(row) for row in rows.iterator(200)))


class DailySummaryFileView(ScopedView):
    @extend_schema(operation_id="daily_summary_file", responses=SummaryEntrySerializer(many=True))
    def get(self, request: Request, day: date) -> StreamingHttpResponse:
        """All summaries of the day in one file, as `daily/<date>/summary/` lists them."""
        rows = daily.summaries(self.person, day).order_by("created", "id")
        return _file("Daily_summary.json", (daily.summary_entry(row) for row in rows.iterator(200)))
