"""`/api/v1/limits/`: limits of usage for people and programs, for an administrator's programs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django.db.models import Model, QuerySet
from django.utils.translation import gettext_lazy
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers, viewsets
from rest_framework.serializers import BaseSerializer

from accounts.access.api_views import ScopedView
from accounts.limits import services
from accounts.models import ApiToken, Limit, PeopleGroup, User
from core.api.fields import StrictSerializer
from core.api.pagination import OldestFirst
from core.permissions import require_right

EVERYONE = "everyone"
FOR: Mapping[str, type[Model]] = {"user": User, "group": PeopleGroup, "token": ApiToken}
_ID = {"type": "string", "format": "uuid"}
_ONE = [
    {"type": "object", "properties": {name: _ID}, "required": [name], "additionalProperties": False} for name in FOR
]


@dataclass(frozen=True, slots=True)
class LimitTarget:
    """The person, group or token that a limit applies to. Without any of them it applies to everyone."""

    user: User | None = None
    group: PeopleGroup | None = None
    token: ApiToken | None = None


@extend_schema_field({"oneOf": [{"type": "string", "enum": [EVERYONE]}, *_ONE]})
class ForField(serializers.Field[Any, Any, Any, Any]):
    """The target of a limit: `"everyone"`, counted per person, or an object with the id of one target."""

    default_error_messages: ClassVar = {
        "invalid": gettext_lazy('Write "everyone", or an object with one member: {names}, and the id of one.'),
        "unknown": gettext_lazy("There is no {name} with this id."),
    }

    def get_attribute(self, instance: Limit) -> Limit:
        return instance

    def to_representation(self, limit: Limit) -> Any:
        ids = {name: getattr(limit, f"{name}_id") for name in FOR}
        return next(({name: str(pk)} for name, pk in ids.items() if pk is not None), EVERYONE)

    def to_internal_value(self, data: Any) -> LimitTarget:
        if data == EVERYONE:
            return LimitTarget()
        if not (isinstance(data, dict) and len(data) == 1 and next(iter(data)) in FOR):
            self.fail("invalid", names=" / ".join(FOR))
        [(name, pk)] = data.items()
        row = FOR[name]._default_manager.filter(pk=serializers.UUIDField().run_validation(pk)).first()
        if isinstance(row, User):
            return LimitTarget(user=row)
        if isinstance(row, PeopleGroup):
            return LimitTarget(group=row)
        if isinstance(row, ApiToken):
            return LimitTarget(token=row)
        self.fail("unknown", name=name)


class LimitSerializer(StrictSerializer, serializers.ModelSerializer[Limit]):
    per = serializers.ChoiceField(
        choices=Limit.Per.choices, allow_null=True, required=False, help_text="Null for a limit without a period."
    )
    amount = serializers.DecimalField(
        20, 6, min_value=0, normalize_output=True, help_text="Money in US dollars, storage in bytes."
    )

    class Meta:
        model = Limit
        fields: ClassVar = ["id", "for", "unit", "per", "amount", "created"]
        read_only_fields: ClassVar = ["id", "created"]
        validators: ClassVar[list[Any]] = []  # the service validates fields that depend on each other

    def get_fields(self) -> Any:
        """Return the fields and add `for`, a Python keyword, which cannot be declared as a class attribute."""
        self._declared_fields["for"] = ForField()
        return super().get_fields()

    def to_representation(self, instance: Limit) -> Any:
        members = super().to_representation(instance)
        return {**members, "per": members["per"] or None}


class LimitViewSet(ScopedView, viewsets.ModelViewSet[Limit]):
    """The limits, for administrators who may see or change them in the admin."""

    scope = "admin"
    serializer_class = LimitSerializer
    pagination_class = OldestFirst
    queryset = Limit.objects.none()
    http_method_names = ("get", "post", "patch", "delete", "head", "options")

    def get_queryset(self) -> QuerySet[Limit]:
        require_right(self.person, "view", Limit)
        return Limit.objects.all()

    def perform_create(self, serializer: BaseSerializer[Limit]) -> None:
        serializer.instance = services.save_limit(user=self.person, limit=_changed(Limit(), serializer))

    def perform_update(self, serializer: BaseSerializer[Limit]) -> None:
        serializer.instance = services.save_limit(user=self.person, limit=_changed(self.get_object(), serializer))

    def perform_destroy(self, instance: Limit) -> None:
        services.delete_limit(user=self.person, limit=instance)


def _changed(limit: Limit, serializer: BaseSerializer[Limit]) -> Limit:
    """Set the fields of the request body on a limit, without storing it."""
    fields = serializer.validated_data
    target: LimitTarget | None = fields.get("for")
    if target is not None:
        limit.user = target.user
        limit.group = target.group
        limit.token = target.token
    limit.unit = fields.get("unit", limit.unit)
    limit.per = fields.get("per", limit.per) or ""
    limit.amount = fields.get("amount", limit.amount)
    return limit
