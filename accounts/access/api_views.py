"""The base of the API views, and the same checks for views outside Django REST framework."""

from django.http import HttpRequest
from rest_framework.exceptions import AuthenticationFailed

from accounts.access.authentication import bearer, user_of_token
from accounts.models import User
from core.api.rate_limit import count_call, require_within_limit
from core.api.views import ApiView, missing_scope
from core.errors import ProductError


class ScopedView(ApiView):
    """The base of every API view.

    It requires a signed-in user and the scope that the view names, limits the rate, and runs each write once per
    `Idempotency-Key`.
    """

    @property
    def person(self) -> User:
        user = self.caller
        if not isinstance(user, User):
            raise TypeError("an API view was reached without a user")
        return user


def user_of_request(request: HttpRequest, scope: str) -> User:
    """Return the user of a token with this scope, or of the session, for views outside Django REST framework.

    Counts the call against the rate limit. Raises `not_authenticated` or `bad_token` (401), `missing_scope` (403),
    `throttled` (429).
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
    require_within_limit(count_call(user, scope), scope)
    return user
