"""Signing in, and the settings pages: preferences, password, tokens, sessions. A view calls one service."""

from collections.abc import Callable
from functools import wraps
from typing import Any
from uuid import UUID

from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts import pages, services
from accounts.forms import PasswordForm, PreferencesForm, TokenForm
from accounts.middleware import SignedInRequest as Request
from accounts.models import ApiToken
from accounts.sessions import sessions_of
from llm.errors import NotFound


def sign_in(view: Callable[..., HttpResponseBase]) -> Callable[[HttpRequest], HttpResponseBase]:
    """Django's view of a sign-in page, answering 429 while its form takes no more tries."""

    @wraps(view)
    def answer(request: HttpRequest) -> HttpResponseBase:
        response = view(request)
        context = getattr(response, "context_data", None) or {}  # a redirect has none
        return _when(response, getattr(context.get("form"), "retry_after", None))

    return answer


@login_required
@require_http_methods(["GET", "POST"])
def preferences(request: Request) -> HttpResponse:
    person = pages.fresh(request.user)  # a form that is refused must not change whose language this page is in
    form = PreferencesForm(request.POST if request.method == "POST" else None, instance=person)
    if request.method == "POST" and form.is_valid():
        services.change_preferences(user=request.user, fields=form.cleaned_data)
        return _saved("settings:preferences")
    return _page(request, "preferences", {"form": form, **pages.preferences()}, invalid=form.is_bound)


@sensitive_post_parameters()
@login_required
@require_http_methods(["GET", "POST"])
def password(request: Request) -> HttpResponseBase:
    form = PasswordForm(request, request.user, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        services.change_password(user=request.user, password=form.cleaned_data["new_password1"])
        update_session_auth_hash(request, request.user)
        return _saved("settings:password")
    return _when(_page(request, "password", {"form": form}, invalid=form.is_bound), form.retry_after)


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def tokens(request: Request) -> HttpResponse:
    """A POST makes a token and shows it, this once: there is no address at which it could be read again."""
    form, made, token = TokenForm(request.POST if request.method == "POST" else None), None, ""
    if request.method == "POST" and form.is_valid():
        made, token = services.create_token(user=request.user, **form.token())
        form = TokenForm()
    context = {"form": form, "made": made, "token": token, **pages.tokens_of(request.user)}
    return _page(request, "tokens", context, invalid=form.is_bound)


@login_required
@require_POST
def revoke(request: Request, pk: UUID) -> HttpResponse:
    token = ApiToken.objects.visible_to(request.user).filter(pk=pk).first()
    if token is None:
        raise NotFound("token")
    services.revoke_token(user=request.user, token=token)
    return redirect("settings:tokens")


@login_required
@require_GET
def sessions(request: Request) -> HttpResponse:
    return _page(request, "sessions", {"sessions": sessions_of(request.user, request.session.session_key)})


@login_required
@require_POST
def end_session(request: Request, pk: str) -> HttpResponse:
    services.end_session(user=request.user, name=pk)
    return redirect("settings:sessions")


@login_required
@require_POST
def end_others(request: Request) -> HttpResponse:
    services.end_sessions(user=request.user, but=request.session.session_key)
    return redirect("settings:sessions")


def _page(request: Request, name: str, context: dict[str, Any], *, invalid: bool = False) -> HttpResponse:
    """`invalid`: the form came back with what is wrong in it, for which 422 is the status."""
    context |= {"section": "settings", "place": name, "saved": "saved" in request.GET}
    return render(request, f"accounts/{name}.html", context, status=422 if invalid else 200)


def _when(response: HttpResponseBase, retry_after: int | None) -> HttpResponseBase:
    if retry_after is not None:
        response.status_code = 429
        response["Retry-After"] = str(retry_after)
    return response


def _saved(name: str) -> HttpResponse:
    """Another request, so that the page comes in the language that was just chosen."""
    return redirect(f"{reverse(name)}?saved")
