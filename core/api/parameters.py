"""Refuse query parameters that an endpoint does not have."""

from collections.abc import Collection, Iterable

from drf_spectacular.utils import OpenApiParameter
from rest_framework.views import APIView

from core.errors import ProductError
from core.sentences import Sentence, shortened


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


def query_names(view: APIView, method: str) -> set[str]:
    """Return the documented query parameters of the view's current operation."""
    operation = getattr(view, "action", None) or method.lower()
    options = getattr(getattr(view, operation, None), "kwargs", {})
    declared = options.get("schema", type(view).schema)
    schema = (declared if isinstance(declared, type) else type(declared))()  # an own instance: threads share `schema`
    schema.view = view
    schema.method = method
    schema.path = ""
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
