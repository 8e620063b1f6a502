"""The base of every API view. It requires a signed-in caller, the view's scope and its rate, and runs each write once.

`accounts.access.api_views.ScopedView` adds the person.
"""

from collections.abc import Collection, Container
from typing import Any, Protocol, runtime_checkable

from django.contrib.auth.models import AbstractUser
from django.db import close_old_connections, connection, transaction
from django.http import HttpRequest, HttpResponseBase
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.api.idempotency import KEY_HEADER, WRITES, IdempotentCall, ReplayedAnswer, begin_call, read_key
from core.api.parameters import query_names, refuse_body, refuse_unknown_query
from core.api.rate_limit import RateAllowance, count_call, require_within_limit
from core.sentences import Sentence


def missing_scope(scope: str) -> Sentence:
    return Sentence("This token lacks the scope “{scope}”. Create one that has it on the settings page.", scope=scope)


@runtime_checkable
class ScopedToken(Protocol):
    """The token that authenticates a program."""

    scopes: Container[str]


class HasScope(BasePermission):
    """Check that the token has the view's scope. Sessions have no token and pass."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        scope = view.required_scope() if isinstance(view, ApiView) else None
        if scope is not None and isinstance(request.auth, ScopedToken) and scope not in request.auth.scopes:
            self.message = str(missing_scope(scope))
            self.code = "missing_scope"
            return False
        return True


class ApiView(APIView):
    """The base of every API view. It requires a signed-in caller, the view's scope and its rate.

    Each write runs once per `Idempotency-Key`.
    """

    permission_classes = (IsAuthenticated, HasScope)
    scope = "chat"
    allowance: RateAllowance | None = None
    call: IdempotentCall | None = None
    new_each_time: Collection[str] = ()  # members of the body that differ in a repeat of the same request

    @property
    def caller(self) -> AbstractUser:
        user = self.request.user
        if not isinstance(user, AbstractUser):
            raise TypeError("an API view was reached without a user")
        return user

    def required_scope(self) -> str | None:
        """Return the scope that a token needs; None admits every token."""
        return self.scope

    def rate(self) -> str:
        """Return the kind of call, a key of `settings.API_RATES`."""
        return self.scope

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = self._once(request, *args, **kwargs)
        if response.streaming and not connection.in_atomic_block:
            close_old_connections()  # otherwise the stream would hold this connection until it ends
        return response

    def _once(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method not in WRITES or KEY_HEADER not in request.headers:
            return super().dispatch(request, *args, **kwargs)
        with transaction.atomic():
            response = super().dispatch(request, *args, **kwargs)
            if self.call is not None:
                self.call.store(response)
        return response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.query_params:
            refuse_unknown_query(request.query_params, query_names(self, request.method or ""))
        refuse_body(request, self)
        key = read_key(request) if request.method in WRITES else None
        if key is not None:
            self.call = begin_call(self.caller, key, request, self.new_each_time)

    def check_throttles(self, request: Request) -> None:
        kind = self.rate()
        self.allowance = count_call(self.caller, kind)
        require_within_limit(self.allowance, kind)

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, ReplayedAnswer):
            return exc.response()  # type: ignore[return-value]  # stored bytes of the first answer
        return super().handle_exception(exc)

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        final = super().finalize_response(request, response, *args, **kwargs)
        if self.allowance is not None:
            self.allowance.set_headers(final)
        return final
