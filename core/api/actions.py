"""Decorator for actions of view sets: a POST to one row."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from core.api.fields import validate


def post_action(
    answer: type[BaseSerializer[Any]], body: type[BaseSerializer[Any]] | None = None, status: int = 200, **options: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Make the method an action of the view set: a POST to one row. The method gets the row.

    The serializer `answer` renders the method's return value. The validated fields of `body` become keyword arguments.
    `options` are passed to DRF's `action`.
    """

    def decorate(method: Callable[..., Any]) -> Any:
        @extend_schema(request=body, responses={status: answer})
        @action(detail=True, methods=["post"], **options)
        @wraps(method)
        def posted(view: Any, request: Request, pk: str) -> Response:
            row = view.get_object()  # before the body, so that its errors reveal nothing about rows of other users
            result = method(view, row, **(validate(body, request) if body else {}))
            return Response(answer(result, context=view.get_serializer_context()).data, status=status)

        return posted

    return decorate
