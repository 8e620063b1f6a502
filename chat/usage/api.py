"""`/api/v1/usage/`: what the caller's model calls took and cost."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.permissions import ScopedView
from accounts.api import MeSerializer, MeView
from accounts.models import Limit, User
from audit.origin import origin
from chat.models import ModelCall
from chat.usage.limits import all_states
from chat.usage.services import between, summed
from core.errors import ProductError
from core.requests import MoneyField, pages, valid

BY = ("day", "model", "conversation", "project", "persona", "purpose")


class UsageQuerySerializer(serializers.Serializer[dict[str, Any]]):
    by = serializers.ChoiceField(choices=BY, default="day")
    model = serializers.UUIDField(required=False)
    conversation = serializers.UUIDField(required=False)
    project = serializers.UUIDField(required=False)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """With `from` and `to`, the one of which Python keeps for itself."""
        days = {name: serializers.DateField(required=False) for name in ("from", "to")}
        return {**super().get_fields(), **days}


class UsageRowSerializer(serializers.Serializer[dict[str, Any]]):
    """Tokens are the providers', and our own count where a provider reports none."""

    key = serializers.CharField(
        allow_null=True, help_text="The id, or the day; null for what is gone, and where there is none."
    )
    name = serializers.CharField(allow_null=True)
    calls = serializers.IntegerField(help_text="Model calls.")
    input = serializers.IntegerField(source="input_tokens", help_text="Tokens read, those of the cache included.")
    cached = serializers.IntegerField(source="cached_tokens", help_text="Of `input`, read from the provider's cache.")
    cache_written = serializers.IntegerField(source="written_tokens", help_text="Of `input`, put into that cache.")
    output = serializers.IntegerField(source="output_tokens", help_text="Tokens written, reasoning included.")
    reasoning = serializers.IntegerField(source="reasoning_tokens", help_text="Of `output`.")
    money = MoneyField(help_text="At the prices of each call's moment.")
    unpriced = serializers.IntegerField(help_text="Calls without a price, which `money` leaves out.")


class LimitStateSerializer(serializers.Serializer[dict[str, str]]):
    """How far a limit is used up; money in US dollars."""

    unit = serializers.ChoiceField(choices=Limit.Unit.choices)
    per = serializers.ChoiceField(choices=Limit.Per.choices, allow_null=True)
    amount = serializers.DecimalField(20, 6, help_text="The most.")
    used = serializers.DecimalField(26, 12)
    resets = serializers.DateTimeField(allow_null=True, help_text="When it begins anew; null of what does not.")


class MyselfSerializer(MeSerializer):
    limits = serializers.SerializerMethodField(
        help_text="What may be used at most, and how much of it is. Of a token its own limits, too."
    )

    class Meta(MeSerializer.Meta):
        fields: ClassVar = [*MeSerializer.Meta.fields, "limits"]

    @extend_schema_field(LimitStateSerializer(many=True))
    def get_limits(self, person: User) -> list[dict[str, Any]]:
        return all_states(person, origin().token_id)


@extend_schema_view(
    get=extend_schema(responses=MyselfSerializer), patch=extend_schema(request=MeSerializer, responses=MyselfSerializer)
)
class MyselfView(MeView):
    """With the limits that hold for them."""

    serializer_class = MyselfSerializer


class UsageView(ScopedView, ListAPIView[Any]):
    serializer_class = UsageRowSerializer
    pagination_class = pages("-last")

    def get_queryset(self) -> QuerySet[Any, Any]:
        asked = valid(UsageQuerySerializer, self.request, self.request.query_params)
        first, last, zone = asked.pop("from", None), asked.pop("to", None), self.person.zone
        if first and last and first > last:
            raise ProductError("bad_range", "“from” is after “to”. Name the earlier day first.")
        by = asked.pop("by")
        return summed(between(ModelCall.objects.visible_to(self.person).filter(**asked), zone, first, last), by, zone)

    @extend_schema(
        parameters=[
            UsageQuerySerializer,
            OpenApiParameter("from", OpenApiTypes.DATE, description="The first day, in the person's time zone."),
            OpenApiParameter("to", OpenApiTypes.DATE, description="The last day."),
        ]
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """What your model calls took and cost, by what they have in common; what was used last comes first."""
        return super().get(request, *args, **kwargs)
