"""Read the rows, ids and days that requests name in their addresses and forms."""

from collections.abc import Callable
from datetime import date
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_http_methods

from core.errors import NotFound, ProductError

Row = TypeVar("Row", bound=Model)
RequestT = TypeVar("RequestT")
Rest = ParamSpec("Rest")
Answer = TypeVar("Answer", bound=HttpResponseBase)
FORM_SUBMISSION = "Form-Submission"  # the header with which a script submits the form of a page
SLOT_RELEASE = "settled"  # key in the ASGI scope: releases the slot of a large body (`config.http.large_bodies`)


def release_slot(request: HttpRequest) -> None:
    """Release the slot of this request's large body. Call this once the body is stored and the view only waits."""
    end = getattr(request, "scope", {}).get(SLOT_RELEASE)
    if end:
        end()


def awaits_fragment(request: HttpRequest) -> bool:
    """Return whether a script of an open page sent the request. The page shows the response as a fragment."""
    return "HX-Request" in request.headers or FORM_SUBMISSION in request.headers


def identifier(value: object, what: str) -> UUID:
    """Return a row's id that came from outside. An invalid id raises `NotFound`, like a missing row."""
    try:
        return UUID(str(value))
    except ValueError as error:
        raise NotFound(what) from error


def get_or_404(rows: QuerySet[Row], pk: object, what: str) -> Row:
    """Return the row with this id, which came from outside. Raises `NotFound` if there is none."""
    return or_404(rows.filter(pk=identifier(pk, what)).first(), what)


def or_404(row: Row | None, what: str) -> Row:
    """Return the row. Raises `NotFound` for None."""
    if row is None:
        raise NotFound(what)
    return row


def choices(rows: QuerySet[Row], chosen: Row | None) -> list[Row]:
    """Return the rows as options. Add the chosen row in front if it is missing, since it must stay selectable."""
    options = list(rows)
    return options if chosen is None or chosen in options else [chosen, *options]


def choice(rows: QuerySet[Row], chosen: Row | None, pk: str, what: str) -> Row | None:
    """Return the row of `choices` that a form names; None for an empty id. Raises `NotFound`."""
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
    [Callable[Concatenate[RequestT, Row, Rest], Answer]], Callable[Concatenate[RequestT, UUID, Rest], HttpResponseBase]
]:
    """Pass the view the row whose id is in the address.

    `find` loads the row for a user, and raises `NotFound` if the user may not see it. `methods` are the view's HTTP
    methods; POST by default.
    """

    def decorate(view: Callable[Concatenate[RequestT, Row, Rest], Answer]) -> Any:
        @require_http_methods(methods or ["POST"])
        @wraps(view)
        def answer(request: Any, pk: UUID, *args: Any, **kwargs: Any) -> Answer:
            return view(request, find(request.user, pk), *args, **kwargs)

        return answer

    return decorate


class DayConverter:
    """A day in ISO 8601. `length`: the number of characters in an address. A missing month or day is the first."""

    regex = r"\d{4}-\d{2}-\d{2}"
    length = 10

    def to_python(self, value: str) -> date:
        return date.fromisoformat((value + "-01-01")[:10])

    def to_url(self, value: date) -> str:
        return value.isoformat()[: self.length]
