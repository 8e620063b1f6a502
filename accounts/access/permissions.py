"""What a token may do, how often, and how a repeated write is answered. A session may do what its user may."""

from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponseBase
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access import idempotency, rate_limits
from accounts.access.authentication import bearer, user_of_token
from accounts.models import ApiToken, User
from core.errors import ProductError


def missing_scope(scope: str) -> str:
    return f"This token lacks the scope “{scope}”. Create one that has it on the settings page."


class HasScope(BasePermission):
    """A view names its scope. Sessions carry no token and pass."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        scope = view.scope_needed() if isinstance(view, ScopedView) else None
        if scope is not None and isinstance(request.auth, ApiToken) and scope not in request.auth.scopes:
            self.message = missing_scope(scope)
            self.code = "missing_scope"
            return False
        return True


class ScopedView(APIView):
    """The base of every API view: signed in, with the scope that the view names, within its rate, and each write
    once per `Idempotency-Key`."""

    permission_classes = (IsAuthenticated, HasScope)
    scope = "chat"
    allowance: rate_limits.Allowance | None = None
    call: idempotency.Call | None = None

    @property
    def person(self) -> User:
        user = self.request.user
        if not isinstance(user, User):
            raise TypeError("an API view was reached without a user")
        return user

    def scope_needed(self) -> str | None:
        """None lets every token in."""
        return self.scope

    def rate(self) -> str:
        """The kind of call that `settings.API_RATES` limits."""
        return self.scope

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method not in idempotency.WRITES or idempotency.HEADER not in request.headers:
            return super().dispatch(request, *args, **kwargs)
        with transaction.atomic():
            response = super().dispatch(request, *args, **kwargs)
            if self.call is not None:
                self.call.keep(response)
        return response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        key = idempotency.key_of(request) if request.method in idempotency.WRITES else None
        if key is not None:
            self.call = idempotency.begin(self.person, key, request)

    def check_throttles(self, request: Request) -> None:
        kind = self.rate()
        self.allowance = rate_limits.count(self.person, kind)
        rate_limits.require(self.allowance, kind)

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, idempotency.Replay):
            return exc.response()  # type: ignore[return-value]  # bytes that were rendered before
        return super().handle_exception(exc)

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        final = super().finalize_response(request, response, *args, **kwargs)
        if self.allowance is not None:
            self.allowance.write(final)
        return final


def user_of_request(request: HttpRequest, scope: str) -> User:
    """For views that Django REST framework does not cover: who asks, by a token of that scope or by the session.

    Counts the call, too. Raises `not_authenticated` or `bad_token` (401), `missing_scope` (403), `throttled` (429).
    """
    token = bearer(request)
    try:
        user, row = user_of_token(token) if token else (request.user, None)
    except AuthenticationFailed as error:
        raise ProductError("bad_token", str(error.detail), status=401) from error
    if not isinstance(user, User) or not user.is_active:
        raise ProductError("not_authenticated", "Sign in, or send a token as “Authorization: Bearer …”.", status=401)
    if row is not None and scope not in row.scopes:
        raise ProductError("missing_scope", missing_scope(scope), status=403)
    rate_limits.require(rate_limits.count(user, scope), scope)
    return user
