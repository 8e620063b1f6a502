"""`/api/v1/prompts/`: a person's saved prompts for programs."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from rest_framework import serializers, viewsets
from rest_framework.serializers import BaseSerializer

from accounts.access.permissions import ScopedView
from core.rest import ByName, Strict
from personas.models import SavedPrompt
from personas.prompts import services


class PromptSerializer(Strict, serializers.ModelSerializer[SavedPrompt]):
    text = serializers.CharField(max_length=SavedPrompt.MAX_TEXT)

    class Meta:
        model = SavedPrompt
        fields: ClassVar = ["id", "name", "text", "created"]
        read_only_fields: ClassVar = ["id", "created"]


class PromptViewSet(ScopedView, viewsets.ModelViewSet[SavedPrompt]):
    serializer_class = PromptSerializer
    pagination_class = ByName
    queryset = SavedPrompt.objects.none()
    http_method_names = ("get", "post", "patch", "delete", "head", "options")

    def get_queryset(self) -> QuerySet[SavedPrompt]:
        return SavedPrompt.objects.visible_to(self.request.user)

    def perform_create(self, serializer: BaseSerializer[SavedPrompt]) -> None:
        serializer.instance = services.create(user=self.person, **_fields(serializer))

    def perform_update(self, serializer: BaseSerializer[SavedPrompt]) -> None:
        prompt: Any = serializer.instance
        serializer.instance = services.update(user=self.person, prompt=prompt, fields=_fields(serializer))

    def perform_destroy(self, instance: SavedPrompt) -> None:
        services.delete(user=self.person, prompt=instance)


def _fields(serializer: BaseSerializer[SavedPrompt]) -> dict[str, Any]:
    return dict(serializer.validated_data)
