"""`/api/v1/limits/`: what people and programs may use at most, for an administrator's programs."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.db.models import Model, QuerySet
from django.utils.translation import gettext_lazy
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers, viewsets
from rest_framework.serializers import BaseSerializer

from accounts.access.api_views import ScopedView
from accounts.limits import services
from accounts.models import ApiToken, Limit, PeopleGroup, User
from core.api.fields import Strict
from core.api.pagination import OldestFirst
from core.permissions import require_right

EVERYONE = "everyone"
FOR: Mapping[str, type[Model]] = {"user": User, "group": PeopleGroup, "token": ApiToken}
_ID = {"type": "string", "format": "uuid"}
_ONE = [
    {"type": "object", "properties": {name: _ID}, "required": [name], "additionalProperties": False} for name in FOR
]


@extend_schema_field({"oneOf": [{"type": "string", "enum": [EVERYONE]}, *_ONE]})
class ForField(serializers.Field[Any, Any, Any, Any]):
    """Whom a limit holds for: `"everyone"`, each by themselves, or an object with the id of one."""

    default_error_messages: ClassVar = {
        "invalid": gettext_lazy('Write "everyone", or an object with one member: {names}, and the id of one.'),
        "unknown": gettext_lazy("There is no {name} with this id."),
    }

    def get_attribute(self, instance: Limit) -> Limit:
        return instance

    def to_representation(self, limit: Limit) -> Any:
        ids = {name: getattr(limit, f"{name}_id") for name in FOR}
        return next(({name: str(pk)} for name, pk in ids.items() if pk is not None), EVERYONE)

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        nobody: dict[str, Any] = dict.fromkeys(FOR)
        if data == EVERYONE:
            return nobody
        if not (isinstance(data, dict) and len(data) == 1 and next(iter(data)) in FOR):
            self.fail("invalid", names=" / ".join(FOR))
        [(name, pk)] = data.items()
        found = FOR[name]._default_manager.filter(pk=serializers.UUIDField().run_validation(pk)).first()
        if found is None:
            self.fail("unknown", name=name)
        return {**nobody, name: found}


class LimitSerializer(Strict, serializers.ModelSerializer[Limit]):
    per = serializers.ChoiceField(
        choices=Limit.Per.choices, allow_null=True, required=False, help_text="Null of what holds at any moment."
    )
    amount = serializers.DecimalField(
        20, 6, min_value=0, normalize_output=True, help_text="Money in US dollars, storage in bytes."
    )

    class Meta:
        model = Limit
        fields: ClassVar = ["id", "for", "unit", "per", "amount", "created"]
        read_only_fields: ClassVar = ["id", "created"]
        validators: ClassVar[list[Any]] = []  # the service says what is wrong of all that belongs together

    def get_fields(self) -> dict[str, Any]:
        """With `for`, which Python keeps for itself."""
        self._declared_fields["for"] = ForField()
        return super().get_fields()

    def to_representation(self, instance: Limit) -> dict[str, Any]:
        shown = super().to_representation(instance)
        return {**shown, "per": shown["per"] or None}


class LimitViewSet(ScopedView, viewsets.ModelViewSet[Limit]):
    """Whoever may see or change limits in the admin may do so here."""

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
    fields = dict(serializer.validated_data)
    for name, value in {**fields.pop("for", {}), **fields}.items():
        setattr(limit, name, "" if name == "per" and value is None else value)
    return limit
