"""The page on which users set up second factors, and the pages that ask for a second factor.

The views that create a factor or check a passkey come from django-allauth. Only their responses are the product's.
"""

from collections.abc import Mapping
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.mfa.recovery_codes.views import GenerateRecoveryCodesView
from allauth.mfa.totp.views import ActivateTOTPView
from allauth.mfa.webauthn.views import AddWebAuthnView, LoginWebAuthnView
from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse, reverse_lazy
from django.utils.decorators import method_decorator
from django.utils.safestring import SafeString
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access.login import (
    OPENID_SESSION,
    SECURED,
    complete_sign_in,
    fresh_sign_in,
    is_fresh,
    local_address,
    must_set_up_factor,
    pending_sign_in,
    require_password_sign_in,
)
from accounts.access.second_factor import is_required
from accounts.access.sessions import SignedInRequest as Request
from accounts.second_factors import services
from accounts.second_factors.forms import (
    NEW_APP,
    CodeForm,
    NewAppForm,
    NewPasskeyForm,
    PasskeySignInForm,
    passkey_refused,
    require_passkey,
)
from core.errors import ProductError
from core.sentences import NO_SENTENCE
from workspace.models.settings import workspace_of

PAGE = reverse_lazy("settings:second-factor")


# Signing in


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def second_step(request: HttpRequest) -> HttpResponse:
    """Ask a person who has given their password for the second factor."""
    pending = pending_sign_in(request)
    if pending is None:
        return redirect("login")
    form = CodeForm(request, pending.user, request.POST if "code" in request.POST else None)
    problem = NO_SENTENCE
    try:
        if "credential" in request.POST:
            require_passkey(pending.user, request.POST).record_usage()
        if "credential" in request.POST or form.is_valid():
            complete_sign_in(request, pending.user)
            return redirect(pending.then)
    except ProductError as error:
        problem = error.sentence
    factors = services.factors_of(pending.user)
    context = {
        "form": form,
        "problem": problem,
        "passkeys": " ".join(row.data["credential"]["id"] for row in factors if row.type == "webauthn"),
        "app": any(row.type == "totp" for row in factors),
    }
    response = render(request, "registration/second_factor.html", context, status=422 if request.POST else 200)
    if form.retry_after is not None:
        response.status_code = 429
        response["Retry-After"] = str(form.retry_after)
    return response


@method_decorator(never_cache, name="dispatch")
class PasskeySignInView(LoginWebAuthnView):  # type: ignore[misc]  # it has no types
    """Sign in the user whose passkey signed the challenge, which a script fetches by GET. A passkey is both factors."""

    form_class = PasskeySignInForm
    http_method_names = ("get", "post")

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return super().get(request, *args, **kwargs) if get_adapter().is_ajax(request) else redirect("login")

    def get_form_kwargs(self) -> Mapping[str, object]:
        return {**super().get_form_kwargs(), "request": self.request}

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        then = local_address(request, request.POST.get("next", ""))
        try:
            super().post(request, *args, **kwargs)
        except ProductError as error:
            page = "login-again" if request.user.is_authenticated else "login"
            return redirect(reverse(page, query={"next": then, "refused": error.code}))
        return redirect(then)

    def form_valid(self, form: PasskeySignInForm) -> None:
        require_password_sign_in(form.row.user)
        form.row.record_usage()
        self.request.session.pop(OPENID_SESSION, None)
        complete_sign_in(self.request, form.row.user)

    def form_invalid(self, form: PasskeySignInForm) -> None:
        raise passkey_refused()


# The settings page


@never_cache
@require_GET
def page(request: Request) -> HttpResponse:
    return _page(request)


def _page(request: Request, *, status: int = 200, **more: object) -> HttpResponse:
    """Return the page. `more`: further variables for its template."""
    factors = services.factors_of(request.user)
    unused = services.recovery_codes(request.user)
    context: dict[str, object] = {
        "section": "settings",
        "place": "second-factor",
        "frame": f"accounts/{'held_up' if must_set_up_factor(request, workspace_of(request)) else 'frame'}.html",
        "fresh": is_fresh(request),
        "app": next((row for row in factors if row.type == "totp"), None),
        "passkeys": [row for row in factors if row.type == "webauthn"],
        "codes_left": None if unused is None else len(unused),
        "required": is_required(request.user, workspace_of(request)),
        "last": len(factors) == 1,
    }
    return render(request, "accounts/second_factor.html", context | more, status=status)


class FactorViewMixin:
    """Respond with the settings page, also to errors. `AccountAdapter` has already required a fresh sign-in."""

    request: Request
    did_generate_recovery_codes = True

    def get_success_url(self) -> str:
        return str(PAGE)

    def post(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            response: HttpResponse = super().post(request, *args, **kwargs)  # type: ignore[misc]  # the other base has it
        except ProductError as error:
            return _page(request, status=error.status, problem=error.sentence)
        return response

    def finish(self, kind: str = "") -> HttpResponse:
        """Return the page with the new recovery codes, which are shown only once."""
        codes = services.recovery_codes(self.request.user) if self.did_generate_recovery_codes else None
        return _page(self.request, made=kind, codes="\n".join(codes or []))


@method_decorator([never_cache, sensitive_post_parameters()], name="dispatch")
class AppView(FactorViewMixin, ActivateTOTPView):  # type: ignore[misc]  # it has no types
    """Set up an authenticator app. A GET shows a new secret; a POST brings the code that the app shows."""

    form_class = NewAppForm

    def dispatch(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if any(row.type == "totp" for row in services.factors_of(request.user)):
            return redirect(PAGE)
        response: HttpResponseBase = super().dispatch(request, *args, **kwargs)
        return response

    def get_form_kwargs(self) -> Mapping[str, object]:
        return {**super().get_form_kwargs(), "session": self.request.session}

    def form_valid(self, form: NewAppForm) -> HttpResponse:
        person = self.request.user
        with services.adding(user=person, kind="totp", session=self.request.session.session_key):
            super().form_valid(form)
            services.use_up_code(user=person, code=form.cleaned_data["code"])
        del self.request.session[NEW_APP]
        return self.finish("app")

    def render_to_response(self, context: Mapping[str, Any], **options: Any) -> HttpResponse:
        form = context["form"]
        svg = context["totp_svg"]
        new_app = {
            "drawn": SafeString(svg[svg.index("<svg") :]),
            "secret": " ".join(form.secret[start : start + 4] for start in range(0, len(form.secret), 4)),
            "address": context["totp_url"],
        }
        if not form.is_bound:
            return _page(self.request, begun=new_app)
        error = services.wrong_code()
        return _page(self.request, begun=new_app, problem=error.sentence, status=error.status)


@method_decorator(never_cache, name="dispatch")
class PasskeysView(FactorViewMixin, AddWebAuthnView):  # type: ignore[misc]  # it has no types
    """Add a passkey. A GET returns the challenge to a script; a POST brings the passkey that the browser made."""

    form_class = NewPasskeyForm

    def form_valid(self, form: NewPasskeyForm) -> HttpResponse:
        session = self.request.session.session_key
        with services.adding(user=self.request.user, kind="webauthn", session=session):
            super().form_valid(form)
        return self.finish("passkey")

    def form_invalid(self, form: NewPasskeyForm) -> HttpResponse:
        raise passkey_refused()

    def render_to_response(self, context: Mapping[str, Any], **options: Any) -> HttpResponse:
        challenge = context["js_data"]
        # In allauth, its own script decides whether the passkey is discoverable without a user name. Here it always is.
        selection = challenge["creation_options"]["publicKey"]["authenticatorSelection"]
        selection |= {"residentKey": "required", "requireResidentKey": True}
        return JsonResponse(challenge)


@method_decorator(never_cache, name="dispatch")
class CodesView(FactorViewMixin, GenerateRecoveryCodesView):  # type: ignore[misc]  # it has no types
    """Create new recovery codes."""

    http_method_names = ("post",)

    def form_valid(self, form: forms.Form) -> HttpResponse:
        with services.making_codes(user=self.request.user):
            super().form_valid(form)
        return self.finish()

    def form_invalid(self, form: forms.Form) -> HttpResponse:
        raise services.no_second_factor()


@require_POST
@fresh_sign_in
def remove(request: Request, pk: int) -> HttpResponse:
    services.remove(user=request.user, pk=pk, session=request.session.session_key)
    request.session.pop(SECURED, None)  # the next request checks again whether a factor is set up
    return redirect("settings:second-factor")
