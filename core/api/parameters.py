"""Refuse query parameters and bodies that an endpoint does not take."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.parsers import FormParser, MultiPartParser
from rest_framework.request import Request
from rest_framework.views import APIView

from core.errors import ProductError
from core.json_bodies import JSONParser
from core.sentences import Sentence, shortened

WITH_BODY = ("POST", "PUT", "PATCH")
MAX_NAMED = 5  # members that one sentence names


def refuse_unknown_query(query: Iterable[str], names: Collection[str]) -> None:
    """Raise `unknown_parameter` if the query has a parameter that is not in `names`."""
    for name in query:
        if name not in names:
            listed = (
                Sentence("The parameters are: {names}.", names=", ".join(sorted(names)))
                if names
                else Sentence("It takes none.")
            )
            shown = shortened(name, 100)
            sentence = Sentence("This address has no parameter “{shown}”. {listed}", shown=shown, listed=listed)
            raise ProductError("unknown_parameter", sentence)


def refuse_body(request: Request, view: APIView) -> None:
    """Raise `unknown_member` if the request has a body and the view's current operation takes none.

    An empty object or form does not count as a body. Forms are parsed here, too, since some clients send an empty form
    with each POST.
    """
    if request.method not in WITH_BODY or request.stream is None:
        return
    if _schema(view, request.method).get_request_serializer() is not None:
        return
    request.parsers = [*(request.parsers or ()), JSONParser(), FormParser(), MultiPartParser()]
    if request.data:
        members = [str(name) for name in request.data] if isinstance(request.data, Mapping) else []
        names = ", ".join(f"“{shortened(name, 100)}”" for name in members[:MAX_NAMED])
        detail = (
            Sentence("This address takes no body, but the request has {names}. Omit the body.", names=names)
            if names
            else Sentence("This address takes no body. Omit the body.")
        )
        raise ProductError("unknown_member", detail)


def _schema(view: APIView, method: str) -> Any:
    """Return the OpenAPI schema of the view's current operation."""
    operation = getattr(view, "action", None) or method.lower()
    options = getattr(getattr(view, operation, None), "kwargs", {})
    declared = options.get("schema", type(view).schema)
    schema = (
        declared if isinstance(declared, type) else type(declared)
    )()  # a new instance, since threads share `schema`
    schema.view = view
    schema.method = method
    schema.path = ""
    return schema


def query_names(view: APIView, method: str) -> set[str]:
    """Return the documented query parameters of the view's current operation."""
    operation = getattr(view, "action", None) or method.lower()
    schema = _schema(view, method)
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
