"""Sign-in pages, and the settings pages for preferences, password, tokens and sessions. A view calls one service."""

from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import cast
from uuid import UUID

from django.conf import settings
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import SetPasswordForm
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import trigger_client_event

from accounts import people, services
from accounts.access.login import fresh_second_factor, local_address, proceed, require_password_sign_in
from accounts.access.sessions import SignedInRequest as Request
from accounts.access.sessions import sessions_of
from accounts.forms import PasswordForm, PreferencesForm, TokenForm
from accounts.mailing import sending
from accounts.mailing.views import AddressForm
from accounts.models import ApiToken, User, workspace_timezone
from core.net.site import site_origin
from core.requests import get_or_404
from core.time_zones import legacy_names, names, present_name
from workspace.models.settings import workspace_at, workspace_of

MAX_ENDED_TOKENS = 20  # expired or revoked tokens that are listed


@require_GET
def logo(request: HttpRequest, name: str) -> HttpResponse:
    """Return the workspace's logo without a sign-in, since the sign-in page shows it. A new logo has a new name."""
    workspace = workspace_at()
    if name != workspace.logo_name:
        raise Http404
    response = HttpResponse(bytes(workspace.logo), content_type="image/png")
    response["Cache-Control"] = "public, max-age=31536000, immutable"
    response["Content-Security-Policy"] = "default-src 'none'"
    return response


@cache
def zones() -> list[str]:
    """Return UTC and the names of places. Other names in the time zone database are accepted, but not offered."""
    places = (name for name in names() if "/" in name and not name.startswith("Etc/") and present_name(name) == name)
    return ["UTC", *sorted(places)]


def sign_in(view: Callable[..., HttpResponseBase]) -> Callable[[HttpRequest], HttpResponseBase]:
    """Wrap Django's view of a sign-in page, so that its status is 429 while its form accepts no more tries."""

    @wraps(view)
    def answer(request: HttpRequest) -> HttpResponseBase:
        response = view(request)
        context = getattr(response, "context_data", None) or {}  # a redirect has none
        return _when(response, getattr(context.get("form"), "retry_after", None))

    return answer


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def welcome(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Let the holder of a one-time link choose a password, and sign them in."""
    person = people.find_invited(pk, request.GET.get("key", ""))
    if person is None:
        return render(request, "registration/welcome.html", status=404)
    require_password_sign_in(person)
    form: SetPasswordForm[User] = SetPasswordForm(person, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        services.change_password(user=person, password=form.cleaned_data["new_password1"])
        return redirect(proceed(request, person, reverse(settings.LOGIN_REDIRECT_URL)))
    context = {"form": form, "person": person}
    return render(request, "registration/welcome.html", context, status=422 if form.is_bound else 200)


@never_cache
@require_http_methods(["GET", "POST"])
def forgotten(request: HttpRequest) -> HttpResponseBase:
    """Mail a link for a new password. The page is the same whether or not an account has the address."""
    form = AddressForm(request, request.POST if request.method == "POST" else None)
    accepted = request.method == "POST" and sending.has_mail_server() and form.is_valid()
    if accepted and not form.limit_reached:
        origin = site_origin(request)
        people.request_link(email=form.cleaned_data["email"], origin=origin)
    context = {"form": form, "asked": accepted, "mails": sending.has_mail_server()}
    page = render(request, "registration/forgotten.html", context, status=422 if form.errors else 200)
    return _when(page, form.retry_after)


@require_http_methods(["GET", "POST"])
def preferences(request: Request) -> HttpResponse:
    person = User.objects.get(pk=request.user.pk)  # a copy: a refused form must not change this page's language
    form = PreferencesForm(request.POST if request.method == "POST" else None, instance=person)
    if request.method == "POST" and form.is_valid():
        services.change_preferences(user=request.user, fields=cast("services.PreferenceFields", form.cleaned_data))
        return _saved("settings:preferences")
    context = {
        "form": form,
        "languages": workspace_of(request).offered_languages,
        "themes": User.Theme.choices,
        "zones": zones(),
        "legacy_zones": legacy_names(),
        "workspace_zone": workspace_timezone(),
        "search_approval": workspace_of(request).search_approval,
    }
    return _page(request, "preferences", context, invalid=form.is_bound)


@require_POST
def hide_tasks_notice(request: Request) -> HttpResponse:
    """Hide the notice that tasks go along with messages. The composer's plan, which shows it, is made again."""
    services.hide_tasks_notice(user=request.user)
    if not request.htmx:
        return redirect("settings:preferences")
    return trigger_client_event(HttpResponse(status=204), "planchange")


@require_POST
def browsers_zone(request: Request) -> HttpResponse:
    """Store the browser's time zone. The script of a page sends it for a user who has not chosen one."""
    services.take_browsers_zone(user=request.user, name=request.POST.get("timezone", ""))
    return HttpResponse(status=204)


@fresh_second_factor
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def password(request: Request) -> HttpResponseBase:
    if not request.user.password_once:
        require_password_sign_in(request.user)
    form = PasswordForm(request, request.user, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        services.change_password(user=request.user, password=form.cleaned_data["new_password1"])
        update_session_auth_hash(request, request.user)
        then = request.POST.get("next", "")
        return redirect(local_address(request, then)) if then else _saved("settings:password")
    frame = "accounts/held_up.html" if request.user.password_once else "accounts/frame.html"
    context = {"form": form, "frame": frame, "next": request.GET.get("next", request.POST.get("next", ""))}
    return _when(_page(request, "password", context, invalid=form.is_bound), form.retry_after)


@fresh_second_factor
@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def tokens(request: Request) -> HttpResponseBase:
    """List the tokens. A POST creates a token and shows it in its response only; no page shows it again."""
    form = TokenForm(request, request.user, request.POST if request.method == "POST" else None)
    row = None
    token = ""
    if request.method == "POST" and form.is_valid():
        fields = form.cleaned_data
        row, token = services.create_token(
            user=request.user, name=fields["name"], scopes=fields["scopes"], expires=form.expires
        )
        form = TokenForm(request, request.user)
    rows = ApiToken.objects.visible_to(request.user).defer("digest")
    usable = rows.usable()
    ended = rows.exclude(pk__in=usable.values("pk"))[:MAX_ENDED_TOKENS]
    context = {"form": form, "made": row, "token": token, "tokens": usable, "ended": ended}
    return _when(_page(request, "tokens", context, invalid=form.is_bound), form.retry_after)


@require_POST
def revoke(request: Request, pk: UUID) -> HttpResponse:
    token = get_or_404(ApiToken.objects.visible_to(request.user), pk, "token")
    services.revoke_token(user=request.user, token=token)
    return redirect("settings:tokens")


@require_POST
def revoke_all(request: Request) -> HttpResponse:
    services.revoke_tokens(user=request.user)
    return redirect("settings:tokens")


@require_GET
def sessions(request: Request) -> HttpResponse:
    tokens = ApiToken.objects.visible_to(request.user).usable().exists()
    rows = sessions_of(request.user, request.session.session_key)
    return _page(request, "sessions", {"sessions": rows, "tokens": tokens})


@require_POST
def end_session(request: Request, pk: str) -> HttpResponse:
    services.end_session(user=request.user, name=pk)
    return redirect("settings:sessions")


@require_POST
def end_others(request: Request) -> HttpResponse:
    tokens = "tokens" in request.POST
    services.sign_out_elsewhere(user=request.user, here=request.session.session_key, tokens=tokens)
    return redirect("settings:sessions")


def _page(request: Request, name: str, context: Mapping[str, object], *, invalid: bool = False) -> HttpResponse:
    """Return a settings page. `invalid`: its form has errors, so the status is 422."""
    frame = {"section": "settings", "place": name, "saved": "saved" in request.GET}
    return render(request, f"accounts/{name}.html", {**context, **frame}, status=422 if invalid else 200)


def _when(response: HttpResponseBase, retry_after: int | None) -> HttpResponseBase:
    if retry_after is not None:
        response.status_code = 429
        response["Retry-After"] = str(retry_after)
    return response


def _saved(name: str) -> HttpResponse:
    """Redirect to the page, so that it appears in the language that was just chosen."""
    return redirect(f"{reverse(name)}?saved")
