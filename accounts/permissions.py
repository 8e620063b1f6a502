"""What a token may do. A session may do what its user may."""

from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.views import APIView

from accounts.models import ApiToken, User


class HasScope(BasePermission):
    """A view names its scope in `scope`. Sessions carry no token and pass."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        scope = getattr(view, "scope", None)
        if isinstance(request.auth, ApiToken) and scope not in request.auth.scopes:
            self.message = f"This token lacks the scope “{scope}”. Create one that has it on the settings page."
            self.code = "missing_scope"
            return False
        return True


class ScopedView(APIView):
    """The base of every API view: signed in, and with the scope that the view names."""

    permission_classes = (IsAuthenticated, HasScope)
    scope = "chat"

    @property
    def person(self) -> User:
        user = self.request.user
        if not isinstance(user, User):
            raise TypeError("an API view was reached without a user")
        return user
