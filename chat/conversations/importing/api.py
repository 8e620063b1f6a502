"""`/api/v1/imports/`: bringing along exports of other products, for programs."""

from typing import ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.permissions import ScopedView
from chat.conversations.importing.services import start_import
from chat.models import Import
from core.errors import ProductError
from core.rest import pages
from files.api import UploadSerializer
from llm.serializers import SentenceField


class ResultSerializer(serializers.Serializer[dict[str, str]]):
    title = serializers.CharField()
    outcome = serializers.ChoiceField(choices=["imported", "known", "skipped"])
    why = SentenceField()
    conversation = serializers.UUIDField(allow_null=True)


class ImportSerializer(serializers.ModelSerializer[Import]):
    results = ResultSerializer(many=True)
    error_detail = SentenceField()

    class Meta:
        model = Import
        fields: ClassVar = [
            *("id", "name", "status", "progress", "imported", "known", "skipped", "results"),
            *("error_code", "error_detail", "created", "finished"),
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
        """Takes an export of ChatGPT or Claude (the zip or its conversations.json); ask again until it is done."""
        if "file" not in request.FILES:
            raise ProductError("no_file", "Send the export as multipart/form-data in the field “file”.")
        given = request.FILES["file"]
        job = start_import(user=self.person, name=given.name or "", content=given)
        return Response(self.get_serializer(job).data, status=status.HTTP_202_ACCEPTED)
