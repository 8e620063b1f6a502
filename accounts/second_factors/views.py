"""The page on which one sets up second factors, and the pages that ask for one. A view calls one service."""

from typing import Any

from allauth.mfa.adapter import get_adapter
from allauth.mfa.totp.internal.auth import generate_totp_secret
from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import login_throttle, sign_ins
from accounts.access.login import (
    SECURED,
    THROUGH,
    enter,
    fresh_sign_in,
    is_fresh,
    is_held_up,
    local_address,
    require_own_way,
    waiting,
)
from accounts.access.second_factor import is_required
from accounts.access.sessions import SignedInRequest as Request
from accounts.models import User
from accounts.models.workspace import workspace_of
from accounts.second_factors import passkeys, services
from core.crypto import decrypt, encrypt
from core.errors import ProductError
from core.sentences import NO_SENTENCE, Sentence

SECRET = "app_secret"  # noqa: S105 - where the session keeps, encrypted, that of an app which is being set up


class CodeForm(forms.Form):
    """A code of one's app, or a recovery code, of which only so many are tried."""

    retry_after: int | None = None

    code = forms.CharField(max_length=40)

    def __init__(self, request: HttpRequest, user: User, data: Any = None) -> None:
        super().__init__(data)
        self.request, self.user = request, user

    def clean_code(self) -> str:
        code: str = self.cleaned_data["code"]
        attempt = login_throttle.begin_code(self.request, self.user, services.kind_of_code(code))
        self.retry_after = attempt.retry_after
        login_throttle.require_tries(self.retry_after)
        if not services.takes_code(user=self.user, code=code):
            sign_ins.code_refused(self.user)
            self.retry_after = attempt.retry_after_failure
            login_throttle.require_tries(self.retry_after)
            sentence = _("This code is not right, or it was used already. Enter the next one that your app shows.")
            raise ValidationError(sentence, code="wrong_code")
        attempt.succeeded()
        return code


# Signing in


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def second_step(request: HttpRequest) -> HttpResponse:
    """For whoever has given their password."""
    asked = waiting(request)
    if asked is None:
        return redirect("login")
    form = CodeForm(request, asked.user, request.POST if "code" in request.POST else None)
    problem = NO_SENTENCE
    if request.method == "POST":
        try:
            if "credential" in request.POST:
                passkeys.owner(request, request.POST["credential"], asked.user)
            if "credential" in request.POST or form.is_valid():
                enter(request, asked.user)
                return redirect(asked.then)
        except ProductError as error:
            problem = error.sentence
    kinds = {row.type for row in services.factors_of(asked.user)}
    context = {"form": form, "problem": problem, "passkeys": "webauthn" in kinds, "app": "totp" in kinds}
    response = render(request, "registration/second_factor.html", context, status=422 if request.POST else 200)
    if form.retry_after is not None:
        response.status_code = 429
        response["Retry-After"] = str(form.retry_after)
    return response


@never_cache
@require_POST
def passkey_options(request: HttpRequest) -> HttpResponse:
    """What a browser is to sign with a passkey: of who waits for their second factor, else of anybody."""
    asked = waiting(request)
    return JsonResponse(passkeys.request_options(request, asked.user if asked and "second" in request.GET else None))


@never_cache
@require_POST
def passkey(request: HttpRequest) -> HttpResponse:
    """Signs in whoever has signed the challenge: a passkey is both factors."""
    then = local_address(request, request.POST.get("next", ""))
    known = request.user if isinstance(request.user, User) else None  # who signs in again is who they were
    try:
        person = passkeys.owner(request, request.POST.get("credential", ""), known)
        require_own_way(person)
    except ProductError as error:
        page = "login" if known is None else "login-again"
        return redirect(reverse(page, query={"next": then, "refused": error.code}))
    request.session.pop(THROUGH, None)
    enter(request, person)
    return redirect(then)


# The page of settings


@never_cache
@require_GET
def page(request: Request) -> HttpResponse:
    return _page(request)


def _page(request: Request, *, status: int = 200, **more: Any) -> HttpResponse:
    factors = services.factors_of(request.user)
    context: dict[str, Any] = {
        "section": "settings",
        "place": "second-factor",
        "frame": "accounts/held_up.html" if is_held_up(request, workspace_of(request)) else "accounts/frame.html",
        "fresh": is_fresh(request),
        "app": next((row for row in factors if row.type == "totp"), None),
        "passkeys": [row for row in factors if row.type == "webauthn"],
        "codes_left": services.codes_left(request.user),
        "required": is_required(request.user, workspace_of(request)),
        "last": len(factors) == 1,
    }
    return render(request, "accounts/second_factor.html", context | more, status=status)


@fresh_sign_in
@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def app(request: Request) -> HttpResponseBase:
    """A GET begins anew, with another secret; a POST has the code that the app shows for it."""
    kept = request.session.get(SECRET)
    if request.method == "GET" or kept is None:
        secret = generate_totp_secret()
        request.session[SECRET] = encrypt(secret)
        return _app(request, secret)
    secret = decrypt(kept)
    try:
        codes = services.add_app(
            user=request.user,
            secret=secret,
            code=request.POST.get("code", ""),
            session=request.session.session_key,
        )
    except ProductError as error:
        return _app(request, secret, problem=error.sentence, status=error.status)
    del request.session[SECRET]
    return _page(request, made="app", codes="\n".join(codes))


def _app(request: Request, secret: str, *, problem: Sentence = NO_SENTENCE, status: int = 200) -> HttpResponse:
    address = get_adapter().build_totp_url(request.user, secret)
    drawn = get_adapter().build_totp_svg(address)
    spaced = " ".join(secret[start : start + 4] for start in range(0, len(secret), 4))
    begun = {"drawn": SafeString(drawn[drawn.index("<svg") :]), "secret": spaced, "address": address}
    return _page(request, status=status, begun=begun, problem=problem)


@require_POST
@never_cache
@fresh_sign_in
def creation_options(request: Request) -> HttpResponse:
    return JsonResponse(passkeys.creation_options(request, request.user))


@require_POST
@never_cache
@fresh_sign_in
def add_passkey(request: Request) -> HttpResponse:
    try:
        made = passkeys.created(request, request.POST.get("credential", ""))
        name = request.POST.get("name", "")
        session = request.session.session_key
        codes = services.add_passkey(user=request.user, name=name, credential=made, session=session)
    except ProductError as error:
        return _page(request, status=error.status, problem=error.sentence)
    return _page(request, made="passkey", codes="\n".join(codes))


@require_POST
@never_cache
@fresh_sign_in
def codes(request: Request) -> HttpResponse:
    """Makes recovery codes and shows them, this once."""
    return _page(request, codes="\n".join(services.make_codes(user=request.user)))


@require_POST
@fresh_sign_in
def remove(request: Request, pk: int) -> HttpResponse:
    services.remove(user=request.user, pk=pk, session=request.session.session_key)
    request.session.pop(SECURED, None)  # looked at anew
    return redirect("settings:second-factor")
