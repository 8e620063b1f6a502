"""Check the rights of administrators, in the admin, the API and every service, and require a sign-in for pages."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal

from django.contrib.auth import get_permission_codename
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AbstractUser
from django.db import models
from django.http import HttpRequest, HttpResponseBase
from django.urls import URLPattern

from core.errors import ProductError
from core.sentences import Sentence

Action = Literal["add", "change", "delete", "view"]


def has_right(user: AbstractUser, action: Action, what: models.Model | type[models.Model]) -> bool:
    """Return whether the user has the right that the admin requires. A right to change includes the right to view."""
    names = {action, "change"} if action == "view" else {action}
    rights = (f"{what._meta.app_label}.{get_permission_codename(name, what._meta)}" for name in names)
    return user.is_active and user.is_staff and any(user.has_perm(right) for right in rights)


def administers(user: AbstractUser) -> bool:
    """Return whether the user may administer anything. Staff status alone, without a right, is not enough."""
    return user.is_active and (user.is_superuser or (user.is_staff and bool(user.get_all_permissions())))


def require_right(user: AbstractUser | None, action: Action, what: models.Model | type[models.Model]) -> None:
    """Raise `staff_only` or `right_missing` (403). Without a `user`, the product itself acts: a command or the seed."""
    if user is None or has_right(user, action, what):
        return
    if not (user.is_active and user.is_staff):
        raise ProductError("staff_only", "Only an administrator can change this. Ask one to do it.", status=403)
    name = f"{what._meta.app_label}.{get_permission_codename(action, what._meta)}"
    raise ProductError(
        "right_missing", Sentence("You lack the right “{name}”. Ask a superuser for it.", name=name), status=403
    )


def require_store(user: AbstractUser | None, row: models.Model) -> None:
    """Require the right to add a new row, or to change a stored one. Raises the errors of `require_right`."""
    require_right(user, "add" if row._state.adding else "change", row)


def signed_out_error() -> ProductError:
    """Return the error for a script on a page whose user is no longer signed in."""
    sentence = Sentence("You were signed out. Your text is kept here. Sign in again to continue.")
    return ProductError("not_authenticated", sentence, status=401)


def require_sign_in(patterns: list[URLPattern]) -> list[URLPattern]:
    """Make the views of the patterns require a sign-in, and return the patterns.

    Anonymous visitors are sent to the sign-in page, and from there back to the address. Requests of htmx are refused
    instead, with `not_authenticated` (401).
    """
    for pattern in patterns:
        pattern.callback = _guard(pattern.callback)
    return patterns


def _guard(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    guarded = login_required(view)

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        # A script would follow the redirect to the sign-in page, and take that page for the fragment.
        if request.headers.get("HX-Request") and not request.user.is_authenticated:
            raise signed_out_error()
        return guarded(request, *args, **kwargs)

    return answer
