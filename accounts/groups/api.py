"""`/api/v1/groups/`: manage groups of people. For programs of administrators."""

from typing import Any, ClassVar, cast

from django.db.models import QuerySet
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.serializers import BaseSerializer

from accounts.access.api_views import ScopedView
from accounts.groups import services
from accounts.models import PeopleGroup, Right, User
from core.api.fields import RelatedList, StrictSerializer
from core.api.pagination import ByName
from core.permissions import require_right
from llm.models import Model, ToolServer

MAX_MEMBERS = 10_000
MAX_MANAGERS = 1_000
MAX_MODELS = 1_000
MAX_TOOL_SERVERS = 1_000


class AllOrSome(RelatedList):
    """A list of rows. Null stands for all rows, including rows that are added later."""

    def __init__(self, flag: str, **options: Any) -> None:
        self.flag = flag
        super().__init__(required=False, allow_null=True, allow_empty=True, **options)

    def get_attribute(self, instance: PeopleGroup) -> Any:
        return None if getattr(instance, self.flag) else super().get_attribute(instance)


class PeopleGroupSerializer(StrictSerializer, serializers.ModelSerializer[PeopleGroup]):
    members = RelatedList(
        child_relation=serializers.PrimaryKeyRelatedField(queryset=User.objects.all()),
        max_length=MAX_MEMBERS,
        required=False,
        help_text="Ids of people; empty for “Everyone”.",
    )
    managers = RelatedList(
        child_relation=serializers.PrimaryKeyRelatedField(queryset=User.objects.all()),
        max_length=MAX_MANAGERS,
        required=False,
        help_text="Ids of the people who manage its members.",
    )
    models = AllOrSome(
        "all_models",
        source="allowed_models",
        child_relation=serializers.PrimaryKeyRelatedField(queryset=Model.objects.all()),
        max_length=MAX_MODELS,
        help_text="Ids of the models that its members may use; null: all.",
    )
    tools = AllOrSome(
        "all_tool_servers",
        source="allowed_tool_servers",
        child_relation=serializers.SlugRelatedField(slug_field="name", queryset=ToolServer.objects.all()),
        max_length=MAX_TOOL_SERVERS,
        help_text="Names of the tool servers that its members may use; null: all.",
    )
    may = serializers.ListField(
        child=serializers.ChoiceField(Right.choices), max_length=len(Right.choices), required=False
    )

    class Meta:
        model = PeopleGroup
        fields: ClassVar = [
            *("id", "name", "everyone", "claim", "members", "managers", "models", "tools", "may", "conversation_days"),
            "created",
        ]
        read_only_fields: ClassVar = ["id", "everyone", "created"]

    @property
    def group_fields(self) -> services.GroupFields:
        """Return the fields of the body as `services.save_group` takes them."""
        fields = cast("services.GroupFields", dict(self.validated_data))
        if "allowed_models" in fields:
            fields["all_models"] = fields["allowed_models"] is None
            fields["allowed_models"] = fields["allowed_models"] or []
        if "allowed_tool_servers" in fields:
            fields["all_tool_servers"] = fields["allowed_tool_servers"] is None
            fields["allowed_tool_servers"] = fields["allowed_tool_servers"] or []
        return fields


class GroupViewSet(ScopedView, viewsets.ModelViewSet[PeopleGroup]):
    """Groups of people. Requests need the scope `admin` and the right to view or change groups.

    Of the group “Everyone”, only the rights can be changed.
    """

    scope = "admin"
    serializer_class = PeopleGroupSerializer
    pagination_class = ByName
    queryset = PeopleGroup.objects.none()
    http_method_names = ("get", "post", "patch", "delete", "head", "options")

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        require_right(self.person, "view", PeopleGroup)

    def get_queryset(self) -> QuerySet[PeopleGroup]:
        related = ("members", "managers", "allowed_models", "allowed_tool_servers")
        return PeopleGroup.objects.prefetch_related(*related)

    def perform_create(self, serializer: BaseSerializer[PeopleGroup]) -> None:
        self._store(serializer, None)

    def perform_update(self, serializer: BaseSerializer[PeopleGroup]) -> None:
        self._store(serializer, serializer.instance)

    def _store(self, serializer: Any, group: PeopleGroup | None) -> None:
        row = services.save_group(user=self.person, group=group, fields=serializer.group_fields)
        serializer.instance = self.get_queryset().get(pk=row.pk)

    def perform_destroy(self, instance: PeopleGroup) -> None:
        services.delete_group(user=self.person, group=instance)
