"""Files as programs see them."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from core.i18n import translated
from files.models import File
from files.pages import Piece


class FileErrorSerializer(serializers.Serializer[dict[str, str]]):
    code = serializers.CharField()
    detail = serializers.CharField()


class FileSerializer(serializers.ModelSerializer[File]):
    tokens = serializers.IntegerField(
        source="token_count", read_only=True, allow_null=True, help_text="Null until they are counted."
    )
    error = serializers.SerializerMethodField(help_text="Why it failed.")
    note = serializers.SerializerMethodField(help_text="A remark on a file that could be read: pages without text.")

    class Meta:
        model = File
        fields: ClassVar = [
            "id", "name", "status", "tokens", "size", "media_type", "pages", "width", "height", "searchable",
            "error", "note", "created",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(FileErrorSerializer(allow_null=True))
    def get_error(self, file: File) -> dict[str, str] | None:
        failed = file.status == File.Status.FAILED
        return {"code": file.error_code, "detail": translated(file.error)} if failed else None

    def get_note(self, file: File) -> str:
        return "" if file.status == File.Status.FAILED else translated(file.error)


class UploadSerializer(serializers.Serializer[dict[str, Any]]):
    file = serializers.FileField(allow_empty_file=True, help_text="The bytes; what it is is told from them.")


class PieceSerializer(serializers.Serializer[Piece]):
    page = serializers.IntegerField(help_text="From 1; 0 where there are none.")
    start = serializers.IntegerField(help_text="Characters [start, end) of the file's text.")
    end = serializers.IntegerField()
    text = serializers.CharField()


class TextSerializer(serializers.Serializer[dict[str, Any]]):
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = PieceSerializer(many=True)
