"""`/api/v1/usage/` and `/api/v1/me/usage/`: what model calls took and cost, all of the workspace or one's own."""

from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers
from rest_framework.pagination import PageNumberPagination
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.api_views import ScopedView
from accounts.api import MeSerializer, MeView
from accounts.models import Limit, User
from audit.origin import origin
from chat.ledger.limits import all_states
from chat.ledger.models import ModelCall
from chat.ledger.services import table
from chat.ledger.sums import Line, Used
from core.api.fields import MoneyField, valid
from core.errors import ProductError
from core.permissions import require_right

OF_ALL = ("day", "user", "group", "model", "persona", "project", "token")
OF_ONE = ("day", "model", "conversation", "project", "persona", "group", "token", "purpose")


class RangeSerializer(serializers.Serializer[dict[str, Any]]):
    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """With `from` and `to`, the one of which Python keeps for itself."""
        days = {name: serializers.DateField(required=False) for name in ("from", "to")}
        return {**super().get_fields(), **days}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        first, last = attrs.get("from"), attrs.get("to")
        if first and last and first > last:
            raise ProductError("bad_range", "“from” is after “to”. Name the earlier day first.")
        return attrs


class UsageQuerySerializer(RangeSerializer):
    by = serializers.ChoiceField(choices=OF_ALL, default="day")


class OwnUsageQuerySerializer(RangeSerializer):
    by = serializers.ChoiceField(choices=OF_ONE, default="day")
    model = serializers.UUIDField(required=False)
    conversation = serializers.UUIDField(required=False)
    project = serializers.UUIDField(required=False)


class UsageRowSerializer(serializers.Serializer[Line]):
    """Tokens are the providers', and our own count where a provider reports none."""

    key = serializers.CharField(
        allow_null=True, help_text="The id, or the day; null for what is gone, and where there is none."
    )
    name = serializers.CharField(
        allow_null=True, help_text="As it is now; null for what is gone, and for a persona of somebody's alone."
    )
    calls = serializers.IntegerField(source="figures.calls", help_text="Model calls.")
    input = serializers.IntegerField(source="figures.input", help_text="Tokens read, those of the cache included.")
    cached = serializers.IntegerField(
        source="figures.cached_input", help_text="Of `input`, read from the provider's cache."
    )
    cache_written = serializers.IntegerField(
        source="figures.cache_written", help_text="Of `input`, put into that cache."
    )
    output = serializers.IntegerField(source="figures.output", help_text="Tokens written, reasoning included.")
    reasoning = serializers.IntegerField(source="figures.reasoning", help_text="Of `output`.")
    money = MoneyField(source="figures.cost", help_text="US dollars, at the prices of each call's moment.")
    unpriced = serializers.IntegerField(
        source="figures.unpriced", help_text="Calls without a price, which `money` leaves out."
    )


class UsageRowsSerializer(serializers.Serializer[Any]):
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = UsageRowSerializer(many=True)


class TableRenderer(JSONRenderer):
    """All rows as CSV, for spreadsheets; a refusal is JSON all the same."""

    media_type, format, charset = "text/csv", "csv", "utf-8"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> Any:
        if not isinstance(data, list):
            return super().render(data, accepted_media_type, renderer_context)
        head = list(UsageRowSerializer().fields)
        return table([head, *([row[name] for name in head] for row in data)])


class LinePages(PageNumberPagination):
    """Of rows that are summed in one piece."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200


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


class _SumsView(ScopedView):
    renderer_classes = (JSONRenderer, TableRenderer)

    def answered(self, lines: list[Line]) -> Response:
        """A page of them, or, as a table, all."""
        renderer: Any = self.request.accepted_renderer
        if renderer.format == TableRenderer.format:
            return Response(_shown(lines))
        pages = LinePages()
        rows = _shown(pages.paginate_queryset(lines, self.request) or [])
        return Response({"next": pages.get_next_link(), "previous": pages.get_previous_link(), "results": rows})


def _shown(lines: Any) -> Any:
    return UsageRowSerializer(lines, many=True).data


DAYS = [
    OpenApiParameter("from", OpenApiTypes.DATE, description="The first day."),
    OpenApiParameter("to", OpenApiTypes.DATE, description="The last day."),
    OpenApiParameter("format", str, enum=["json", "csv"], description="“csv” has all rows at once."),
    OpenApiParameter("page", int),
    OpenApiParameter("page_size", int),
]


class UsageView(_SumsView):
    """Whoever may see model calls in the admin may ask here."""

    scope = "admin"

    @extend_schema(parameters=[UsageQuerySerializer, *DAYS], responses=UsageRowsSerializer)
    def get(self, request: Request) -> Response:
        """What the workspace's model calls took and cost, by what they have in common: the last days, else the dearest,
        first. Days are those of the workspace's time zone. A person is counted to one group: of several the oldest."""
        require_right(self.person, "view", ModelCall)
        asked = valid(UsageQuerySerializer, request, request.query_params)
        used = Used(asked.get("from"), asked.get("to"), timezone.get_default_timezone())
        return self.answered(used.lines(asked["by"]))


class OwnUsageView(_SumsView):
    @extend_schema(parameters=[OwnUsageQuerySerializer, *DAYS], responses=UsageRowsSerializer)
    def get(self, request: Request) -> Response:
        """What your model calls took and cost, by what they have in common: the last days, else the dearest, first.
        Days are those of your time zone."""
        asked = valid(OwnUsageQuerySerializer, request, request.query_params)
        by, first, last = asked.pop("by"), asked.pop("from", None), asked.pop("to", None)
        only = {"person_id": self.person.pk, **{f"{name}_id": pk for name, pk in asked.items()}}
        return self.answered(Used(first, last, self.person.zone, only).lines(by))
