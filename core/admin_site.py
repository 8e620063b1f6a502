"""The admin site, and the check of who may open it."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.models import AbstractUser
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from unfold.sites import UnfoldAdminSite

from core.permissions import administers

View = Callable[..., HttpResponseBase]


class AdminSite(UnfoldAdminSite):
    """Unfold's site, closed to staff without any right to administer."""

    def admin_view(self, view: View, cacheable: bool = False) -> Any:
        """Return the view with a check. Staff without a right get 403. Other visitors are sent to the sign-in page."""

        @wraps(view)
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not (isinstance(request.user, AbstractUser) and administers(request.user)):
                raise PermissionDenied
            return view(request, *args, **kwargs)

        return super().admin_view(checked, cacheable)
