"""`/api/v1/models/`: the models that can answer. Here, since `llm` knows nothing of people and their scopes."""

from django.db.models import QuerySet
from rest_framework import viewsets

from accounts.permissions import ScopedView
from llm.models import Model
from llm.serializers import ModelSerializer
from personas.api import ByCreation


class ModelViewSet(ScopedView, viewsets.ReadOnlyModelViewSet[Model]):
    serializer_class = ModelSerializer
    pagination_class = ByCreation
    queryset = Model.objects.none()

    def get_queryset(self) -> QuerySet[Model]:
        return Model.objects.usable()
