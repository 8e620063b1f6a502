"""Report tokens and cost of model calls: `/api/v1/usage/` for the workspace, `/api/v1/me/usage/` for the user."""

from datetime import date
from typing import Any, ClassVar, TypedDict

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
from chat.ledger.limits import LimitJson, load_all_states
from chat.ledger.models import ModelCall
from chat.ledger.services import to_csv
from chat.ledger.sums import UsageLine, UsageReport
from core.api.fields import MoneyField, validate
from core.audit.origin import current_origin
from core.errors import ProductError
from core.permissions import require_right

WORKSPACE_GROUPINGS = ("day", "user", "group", "model", "persona", "project", "token")
OWN_GROUPINGS = ("day", "model", "conversation", "project", "persona", "group", "token", "purpose")


# The validated days of a request. The class syntax is not possible, because `from` is a keyword.
DayRange = TypedDict("DayRange", {"from": date, "to": date}, total=False)


class RangeSerializer(serializers.Serializer[None]):
    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Add the fields `from` and `to`. `from` is a keyword of Python, so it cannot be declared in the class."""
        days = {name: serializers.DateField(required=False) for name in ("from", "to")}
        return {**super().get_fields(), **days}

    def validate(self, attrs: DayRange) -> DayRange:
        first = attrs.get("from")
        last = attrs.get("to")
        if first and last and first > last:
            raise ProductError("bad_range", "“from” is after “to”. Send the earlier day as “from”.")
        return attrs


class UsageQuerySerializer(RangeSerializer):
    by = serializers.ChoiceField(choices=WORKSPACE_GROUPINGS, default="day")


class OwnUsageQuerySerializer(RangeSerializer):
    by = serializers.ChoiceField(choices=OWN_GROUPINGS, default="day")
    model = serializers.UUIDField(required=False)
    conversation = serializers.UUIDField(required=False)
    project = serializers.UUIDField(required=False)


class UsageRowSerializer(serializers.Serializer[UsageLine]):
    """One group of model calls. Tokens are the provider's count, or our own count if the provider reports none."""

    key = serializers.CharField(
        allow_null=True, help_text="The id or the day; null if it was deleted or does not exist."
    )
    name = serializers.CharField(
        allow_null=True, help_text="The current name; null if it was deleted, and for a private persona."
    )
    calls = serializers.IntegerField(source="figures.calls", help_text="Model calls.")
    input = serializers.IntegerField(source="figures.input", help_text="Tokens read, including those from the cache.")
    cached = serializers.IntegerField(
        source="figures.cached_input", help_text="The part of `input` that was read from the provider's cache."
    )
    cache_written = serializers.IntegerField(
        source="figures.cache_written", help_text="The part of `input` that was written to the cache."
    )
    output = serializers.IntegerField(source="figures.output", help_text="Tokens written, including reasoning.")
    reasoning = serializers.IntegerField(source="figures.reasoning", help_text="The part of `output` for reasoning.")
    seconds = serializers.IntegerField(source="figures.seconds", help_text="Seconds of sound that was read or spoken.")
    money = MoneyField(source="figures.cost", help_text="US dollars, at the prices at the time of each call.")
    unpriced = serializers.IntegerField(
        source="figures.unpriced", help_text="Calls without a price, which `money` does not contain."
    )


class UsageRowsSerializer(serializers.Serializer[Any]):
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = UsageRowSerializer(many=True)


class TableRenderer(JSONRenderer):
    """Renders all rows as CSV for spreadsheets, and errors as JSON."""

    media_type = "text/csv"
    format = "csv"
    charset = "utf-8"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> Any:
        if not isinstance(data, list):
            return super().render(data, accepted_media_type, renderer_context)
        head = list(UsageRowSerializer().fields)
        return to_csv([head, *([row[name] for name in head] for row in data)])


class LinePages(PageNumberPagination):
    """Paginates a list. All its rows are already computed."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200


class LimitStateSerializer(serializers.Serializer[LimitJson]):
    """A limit and how much of it is used. Money is in US dollars."""

    unit = serializers.ChoiceField(choices=Limit.Unit.choices)
    per = serializers.ChoiceField(choices=Limit.Per.choices, allow_null=True)
    amount = serializers.DecimalField(20, 6, help_text="The maximum.")
    used = serializers.DecimalField(26, 12)
    resets = serializers.DateTimeField(allow_null=True, help_text="When the count restarts; null if it does not.")


class MyselfSerializer(MeSerializer):
    limits = serializers.SerializerMethodField(
        help_text="The limits and how much of each is used. For a token, also its own limits."
    )

    class Meta(MeSerializer.Meta):
        fields: ClassVar = [*MeSerializer.Meta.fields, "limits"]

    @extend_schema_field(LimitStateSerializer(many=True))
    def get_limits(self, person: User) -> list[LimitJson]:
        return load_all_states(person, current_origin().token_id)


@extend_schema_view(
    get=extend_schema(responses=MyselfSerializer), patch=extend_schema(request=MeSerializer, responses=MyselfSerializer)
)
class MyselfView(MeView):
    """The signed-in user with their limits."""

    serializer_class = MyselfSerializer


class _SumsView(ScopedView):
    renderer_classes = (JSONRenderer, TableRenderer)

    def respond(self, lines: list[UsageLine]) -> Response:
        """Return one page of the lines as JSON, or all of them as CSV."""
        renderer: Any = self.request.accepted_renderer
        if renderer.format == TableRenderer.format:
            return Response(_serialize(lines))
        pages = LinePages()
        rows = _serialize(pages.paginate_queryset(lines, self.request) or [])
        return Response({"next": pages.get_next_link(), "previous": pages.get_previous_link(), "results": rows})


def _serialize(lines: Any) -> Any:
    return UsageRowSerializer(lines, many=True).data


DAYS = [
    OpenApiParameter("from", OpenApiTypes.DATE, description="The first day."),
    OpenApiParameter("to", OpenApiTypes.DATE, description="The last day."),
    OpenApiParameter("format", str, enum=["json", "csv"], description="“csv” has all rows at once."),
    OpenApiParameter("page", int),
    OpenApiParameter("page_size", int),
]


class UsageView(_SumsView):
    """Usage of the workspace, for users with the right to see model calls in the admin."""

    scope = "admin"

    @extend_schema(parameters=[UsageQuerySerializer, *DAYS], responses=UsageRowsSerializer)
    def get(self, request: Request) -> Response:
        """Return the usage and cost of the workspace's model calls in groups. Days come newest first, other groups by
        cost, highest first.

        Days are in the workspace's time zone. A user counts towards one group: the oldest of their groups.
        """
        require_right(self.person, "view", ModelCall)
        query = validate(UsageQuerySerializer, request, request.query_params)
        usage = UsageReport(query.get("from"), query.get("to"), timezone.get_default_timezone())
        return self.respond(usage.lines(query["by"]))


class OwnUsageView(_SumsView):
    @extend_schema(parameters=[OwnUsageQuerySerializer, *DAYS], responses=UsageRowsSerializer)
    def get(self, request: Request) -> Response:
        """Return the usage and cost of your model calls in groups. Days come newest first, other groups by cost,
        highest first.

        Days are in your time zone.
        """
        query = validate(OwnUsageQuerySerializer, request, request.query_params)
        names = ("model", "conversation", "project")
        only = {"person_id": self.person.pk, **{f"{name}_id": query[name] for name in names if name in query}}
        usage = UsageReport(query.get("from"), query.get("to"), self.person.zone, only)
        return self.respond(usage.lines(query["by"]))
