"""What requests name and carry: rows, ids and days in addresses; pages of lists, bodies and entity tags of the API.

Lists come in pages with cursors. Serializers refuse fields that they do not have. Entity tags (RFC 9110, sections 8.8.3
and 13.1.1): who changes something says which state they have read.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_http_methods
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.pagination import CursorPagination
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from core.errors import NotFound, ProductError
from core.sentences import Sentence, shortened

Row = TypeVar("Row", bound=Model)
Asked = TypeVar("Asked")
Rest = ParamSpec("Rest")
Answer = TypeVar("Answer", bound=HttpResponseBase)

IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The ETag that was read. Refused with 412 when something has changed since; without it, never.",
)
ETAG = OpenApiParameter("ETag", str, OpenApiParameter.HEADER, response=True, description="For If-Match.")

_TAG = re.compile(r'(W/)?"([^"]*)"')


EVENT_STREAM = "text/event-stream"


MOST_WRONG = 20  # members of one body that are refused by their names

FORM_SUBMISSION = "Form-Submission"  # the header with which a script submits the form of a page


SETTLED = "settled"  # member of the ASGI scope: ends the turn of a large body, see `config.http.large_bodies`


def settle(request: HttpRequest) -> None:
    """Let the next large body have its turn: the view has stored what it needs of this one, and waits."""
    end = getattr(request, "scope", {}).get(SETTLED)
    if end:
        end()


def awaits_fragment(request: HttpRequest) -> bool:
    """Whether a script has sent the request: its page stays, and takes a fragment with a sentence."""
    return "HX-Request" in request.headers or FORM_SUBMISSION in request.headers


class _Refusal(JSONRenderer):
    """A client that asks for a stream gets refusals as JSON all the same."""

    media_type = EVENT_STREAM


JSON_OR_EVENTS = (JSONRenderer, _Refusal)  # of a view that can answer with a stream of events


class SentenceField(serializers.CharField):
    """What Python code has written for people, in the language of the request."""

    def to_representation(self, value: Any) -> str:
        return str(value if isinstance(value, Sentence) else Sentence.load(value))


class MoneyField(serializers.DecimalField):
    """US dollars, exact; null where nothing has a price."""

    def __init__(self, **options: Any) -> None:
        super().__init__(26, 12, normalize_output=True, allow_null=True, read_only=True, **options)


def identifier(value: object, what: str) -> UUID:
    """A row's id as it came from outside; raises `NotFound` for what is none, as for a row that is not there."""
    try:
        return UUID(str(value))
    except ValueError as error:
        raise NotFound(what) from error


def get_or_404(rows: QuerySet[Row], pk: object, what: str) -> Row:
    """The one of `rows` with this id, as it came from outside; raises `NotFound` when there is none."""
    return or_404(rows.filter(pk=identifier(pk, what)).first(), what)


def or_404(row: Row | None, what: str) -> Row:
    """Raises `NotFound` for a row that was not found."""
    if row is None:
        raise NotFound(what)
    return row


def choices(rows: QuerySet[Row], chosen: Row | None) -> list[Row]:
    """Those to choose from, and the one that is chosen, which may be somebody's that one does not see."""
    found = list(rows)
    return found if chosen is None or chosen in found else [chosen, *found]


def choice(rows: QuerySet[Row], chosen: Row | None, pk: str, what: str) -> Row | None:
    """The one of `choices` that a form names, None for an empty id; raises `NotFound`."""
    if chosen is not None and pk == str(chosen.pk):
        return chosen
    return get_or_404(rows, pk, what) if pk else None


def with_headers(response: Answer, error: ProductError) -> Answer:
    for name, value in error.headers.items():
        response[name] = value
    return response


def with_row(
    find: Callable[[Any, UUID], Row], *methods: str
) -> Callable[
    [Callable[Concatenate[Asked, Row, Rest], Answer]], Callable[Concatenate[Asked, UUID, Rest], HttpResponseBase]
]:
    """A view of the row whose id is in the address: it gets the row itself.

    `find` loads it for a user, and raises `NotFound` for one that is not theirs. `methods` are those that the view
    answers; POST when none is named.
    """

    def decorate(view: Callable[Concatenate[Asked, Row, Rest], Answer]) -> Any:
        @require_http_methods(methods or ["POST"])
        @wraps(view)
        def found(request: Any, pk: UUID, *args: Any, **kwargs: Any) -> Answer:
            return view(request, find(request.user, pk), *args, **kwargs)

        return found

    return decorate


class DayConverter:
    """A day as in ISO 8601; `length` is how much of it an address shows, the rest is the first day."""

    regex = r"\d{4}-\d{2}-\d{2}"
    length = 10

    def to_python(self, value: str) -> date:
        return date.fromisoformat((value + "-01-01")[:10])

    def to_url(self, value: date) -> str:
        return value.isoformat()[: self.length]


class Pages(CursorPagination):
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200


def pages(*ordering: str, size: int = 50, at_most: int | None = 200) -> type[Pages]:
    """A paginator of `size` rows a page in this order, by fields that are never null.

    `at_most` is the largest `page_size` that a request may ask for; None: it gets `size` whatever it asks for.
    """
    asked = None if at_most is None else "page_size"
    members = {"ordering": ordering, "page_size": size, "page_size_query_param": asked, "max_page_size": at_most}
    return type("Pages", (Pages,), members)


NewestFirst = pages("-created", "-id")
OldestFirst = pages("created", "id")
ByUpdate = pages("-updated", "-id")
ByName = pages("name")


def valid(kind: type[BaseSerializer[Any]], request: Request, given: Any = None) -> dict[str, Any]:
    """What was sent, or `given` in its place, as the serializer reads it; raises its `ValidationError`."""
    body = kind(data=request.data if given is None else given, context={"request": request})
    body.is_valid(raise_exception=True)
    return dict(body.validated_data)


def posts(
    answer: type[BaseSerializer[Any]], body: type[BaseSerializer[Any]] | None = None, status: int = 200, **options: Any
) -> Callable[[Callable[..., Any]], Any]:
    """An action of a view set that is posted to one of its rows: it gets the row, and returns what `answer` shows.

    The fields that `body` reads of the request are its keywords; `options` are those of DRF's `action`.
    """

    def decorate(act: Callable[..., Any]) -> Any:
        @extend_schema(request=body, responses={status: answer})
        @action(detail=True, methods=["post"], **options)
        @wraps(act)
        def posted(view: Any, request: Request, pk: str) -> Response:
            row = view.get_object()  # first, so that nobody hears what is wrong with a change of what is not theirs
            done = act(view, row, **(valid(body, request) if body else {}))
            return Response(answer(done, context=view.get_serializer_context()).data, status=status)

        return posted

    return decorate


def expected(request: Request) -> frozenset[str] | None:
    """The tags of `If-Match`; None for a request that takes any. A weak tag never matches."""
    header = request.headers.get("If-Match")
    if header is None or header.strip() == "*":
        return None
    return frozenset(tag for weak, tag in _TAG.findall(header) if not weak)


def tagged(response: Response, tag: str) -> Response:
    response["ETag"] = f'"{tag}"'
    return response


def refuse_unknown_query(query: Iterable[str], names: Collection[str]) -> None:
    """Raise `unknown_parameter` for a parameter of the address's query that is none of `names`."""
    for name in query:
        if name not in names:
            listed = (
                Sentence("The parameters are: {names}.", names=", ".join(sorted(names)))
                if names
                else Sentence("It takes none.")
            )
            shown = shortened(name, 100)
            raise ProductError(
                "unknown_parameter",
                Sentence("This address has no parameter “{shown}”. {listed}", shown=shown, listed=listed),
            )


def query_names(view: APIView, method: str) -> set[str]:
    """Return the query parameters of the operation that the view is at, as its documentation has them."""
    operation = getattr(view, "action", None) or method.lower()
    options = getattr(getattr(view, operation, None), "kwargs", {})
    declared = options.get("schema", type(view).schema)
    schema = (declared if isinstance(declared, type) else type(declared))()  # its own: threads share a class's
    schema.view, schema.method, schema.path = view, method, ""
    names: set[str] = set()
    for parameter in schema.get_override_parameters():
        if isinstance(parameter, OpenApiParameter):
            names |= {parameter.name} if parameter.location == OpenApiParameter.QUERY else set()
        else:
            names |= set(parameter().fields)
    paginator = getattr(view, "pagination_class", None)
    if paginator is not None and operation != "retrieve":
        names |= {paginator.cursor_query_param, paginator.page_size_query_param} - {None}
        for backend in getattr(view, "filter_backends", ()):
            names |= {parameter["name"] for parameter in backend().get_schema_operation_parameters(view)}
    return names


class Strict(serializers.Serializer[Any]):
    """Refuses fields that it does not have, and those that only it sets, by their names."""

    def to_internal_value(self, data: Any) -> Any:
        wrong: dict[str, Any] = {}
        if isinstance(data, Mapping):
            known = [name for name, field in self.fields.items() if not field.read_only]
            for name in map(str, data):
                if len(wrong) == MOST_WRONG:
                    break  # a body may have half a million of them
                if name in self.fields and name not in known:
                    wrong[name] = [Sentence("This field cannot be set.")]
                elif name not in known:
                    wrong[name] = [Sentence("There is no such field. The fields are: {known}.", known=", ".join(known))]
        try:
            valid = super().to_internal_value(data)
        except serializers.ValidationError as error:
            if not wrong or not isinstance(error.detail, dict):
                raise
            raise serializers.ValidationError({**error.detail, **wrong}) from error
        if wrong:
            raise serializers.ValidationError(wrong)
        return valid


@extend_schema_field(OpenApiTypes.UUID)
class VisibleField(serializers.PrimaryKeyRelatedField[Any]):
    """A row of `model` that the caller may see; the serializer's context has their request."""

    def __init__(self, model: type[Model], **options: Any) -> None:
        self.model = model
        super().__init__(**options)

    def get_queryset(self) -> QuerySet[Any]:
        manager: Any = self.model._default_manager
        rows: QuerySet[Any] = manager.visible_to(self.context["request"].user)
        return rows
