"""Fields and serializers of the API. The serializers refuse unknown fields."""

from collections.abc import Mapping
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.db.models import Model, QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.serializers import BaseSerializer

from core.errors import ProductError
from core.sentences import Sentence

MAX_WRONG = 20  # limit of the wrong fields that one error names


class SentenceField(serializers.CharField):
    """A sentence for people, in the language of the request."""

    def to_representation(self, value: Any) -> str:
        return str(value if isinstance(value, Sentence) else Sentence.load(value))


class MoneyField(serializers.DecimalField):
    """An exact amount in US dollars; null if the prices are unknown."""

    def __init__(self, **options: Any) -> None:
        super().__init__(26, 12, normalize_output=True, allow_null=True, read_only=True, **options)


class RelatedList(serializers.ManyRelatedField):
    """A list of related rows, of which a request may name at most `max_length`."""

    def __init__(self, *, max_length: int, **options: Any) -> None:
        self.max_length = max_length
        super().__init__(**options)

    def to_internal_value(self, data: Any) -> list[Any]:
        if isinstance(data, list) and len(data) > self.max_length:
            sentence = Sentence(
                "Name at most {max_length} at once. This request names {data}.",
                max_length=self.max_length,
                data=len(data),
            )
            raise serializers.ValidationError(str(sentence), code="max_length")
        return list(super().to_internal_value(data))


def validate(kind: type[BaseSerializer[Any]], request: Request, data: Any = None) -> dict[str, Any]:
    """Validate the request's body, or `data` if it is set. Return the validated fields. Raises `ValidationError`."""
    body = kind(data=request.data if data is None else data, context={"request": request})
    body.is_valid(raise_exception=True)
    return dict(body.validated_data)


def validate_upload(kind: "type[StrictSerializer]", request: Request, missing: str) -> "UploadedFile[Any]":
    """Validate a form with the serializer, whose only field is `file`. Return the file.

    Raises `no_file` with the sentence `missing` if the form has no file, and `ValidationError` for other fields.
    """
    data = request.data
    others = [name for name in data if name != "file"] if isinstance(data, Mapping) else []
    if "file" not in request.FILES and not others:
        raise ProductError("no_file", missing)
    file: UploadedFile[Any] = validate(kind, request)["file"]
    return file


class StrictSerializer(serializers.Serializer[Any]):
    """A serializer that refuses unknown fields and read-only fields, each by name."""

    def to_internal_value(self, data: Any) -> Any:
        wrong: dict[str, list[str]] = {}
        if isinstance(data, Mapping):
            writable = [name for name, field in self.fields.items() if not field.read_only]
            for name in map(str, data):
                if len(wrong) == MAX_WRONG:
                    break  # a body may have half a million wrong fields
                if name in self.fields and name not in writable:
                    wrong[name] = [str(Sentence("This field cannot be set."))]
                elif name not in writable:
                    listed = ", ".join(writable)
                    wrong[name] = [str(Sentence("There is no such field. The fields are: {known}.", known=listed))]
        try:
            fields = super().to_internal_value(data)
        except serializers.ValidationError as error:
            if not wrong or not isinstance(error.detail, dict):
                raise
            raise serializers.ValidationError({**error.detail, **wrong}) from error
        if wrong:
            raise serializers.ValidationError(wrong)
        return fields


@extend_schema_field(OpenApiTypes.UUID)
class VisibleField(serializers.PrimaryKeyRelatedField[Any]):
    """A row of `model` that the caller may see. The serializer's context must have the `request`."""

    def __init__(self, model: type[Model], **options: Any) -> None:
        self.model = model
        super().__init__(**options)

    def get_queryset(self) -> QuerySet[Any]:
        manager: Any = self.model._default_manager
        rows: QuerySet[Any] = manager.visible_to(self.context["request"].user)
        return rows
