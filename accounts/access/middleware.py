"""A signed-in person sees times and words their way, and when their session was last used."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils import timezone, translation
from django_htmx.middleware import HtmxDetails

from accounts.access.sessions import note_visit
from accounts.models import User


class SignedInRequest(HttpRequest):
    """For type checkers: the request of a view behind `login_required`."""

    user: User
    htmx: HtmxDetails


class UserPreferencesMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        # A program's bearer token has no pages, so it needs no preferences and no look-up of a session here.
        user = request.user if not request.headers.get("Authorization") else None
        if not isinstance(user, User):
            return self.get_response(request)
        note_visit(request.session, request.headers.get("User-Agent", ""))
        with timezone.override(user.zone):
            if user.language:
                translation.activate(user.language)
                request.LANGUAGE_CODE = user.language
            return self.get_response(request)
