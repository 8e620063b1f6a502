"""The site of the admin's pages, and who may open it."""

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
    """Unfold's site, for people who have something to administer: staff without a right open none of its pages."""

    def admin_view(self, view: View, cacheable: bool = False) -> Any:
        """Return the view, refused (403) to staff without a right. Other people are sent to the sign-in page."""

        @wraps(view)
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not (isinstance(request.user, AbstractUser) and administers(request.user)):
                raise PermissionDenied
            return view(request, *args, **kwargs)

        return super().admin_view(checked, cacheable)
