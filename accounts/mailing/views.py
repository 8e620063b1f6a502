"""The page where users change their e-mail address, and the sign-up pages. Each view calls one service."""

from typing import Any

from django import forms
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from accounts.access import login_throttle
from accounts.access.login import fresh_sign_in, proceed
from accounts.access.sessions import SignedInRequest as Request
from accounts.mailing import addresses, sending
from accounts.models import User
from core.errors import ProductError
from core.net.site import site_origin
from core.sentences import NO_SENTENCE


class AddressForm(forms.Form):
    """A form for an address to which a mail is sent.

    `limit_reached`: the address has had too many mails, so none is sent for now. The page does not show this.
    """

    retry_after: int | None = None
    limit_reached = False

    email = forms.EmailField(max_length=254)

    def __init__(self, request: HttpRequest, data: Any = None) -> None:
        super().__init__(data)
        self.request = request

    def clean(self) -> Any:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("email"):
            attempt = login_throttle.begin_mail(self.request, cleaned["email"])
            self.limit_reached = attempt.pair is not None and attempt.pair.exceeded
            self.retry_after = attempt.address.reset if attempt.address and attempt.address.exceeded else None
            login_throttle.require_tries(self.retry_after)
        return cleaned


class OwnAddressForm(AddressForm):
    email = forms.EmailField(max_length=254, required=False)


class SignUpForm(AddressForm):
    def clean_email(self) -> str:
        email: str = self.cleaned_data["email"]
        if not addresses.is_allowed_domain(email):
            raise ValidationError(_("You cannot sign up with an address of this domain. Ask an administrator."))
        return email


class AccountForm(SetPasswordForm):  # type: ignore[type-arg]  # not generic at run time
    """The last step of a sign-up: choose a user name and a password."""

    username = forms.CharField(max_length=150, validators=[UnicodeUsernameValidator()])

    def __init__(self, email: str, data: Any = None) -> None:
        super().__init__(User(email=email), data)
        self.email = email

    def clean_username(self) -> str:
        username: str = self.cleaned_data["username"]
        if User.objects.filter(username__iexact=username).exists():
            raise ValidationError(_("Somebody has this user name. Choose another."))
        self.user.username = username  # the validators compare the password with it
        return username


@fresh_sign_in
@never_cache
@require_http_methods(["GET", "POST"])
def email(request: Request) -> HttpResponseBase:
    """Show and change the user's address. The mailed link opens this page with its `key`."""
    problem = NO_SENTENCE
    status = 200
    sent = ""
    form = OwnAddressForm(request, request.POST if request.method == "POST" else None)
    try:
        if request.method == "GET" and "key" in request.GET:
            addresses.confirm_email(user=request.user, key=request.GET["key"])
            return redirect(reverse("settings:email", query={"saved": ""}))
        if request.method == "POST" and form.is_valid() and not form.limit_reached:
            address = form.cleaned_data["email"]
            if addresses.change_email(user=request.user, email=address, origin=site_origin(request)):
                return redirect(reverse("settings:email", query={"saved": ""}))
            sent = address
    except ProductError as error:
        problem = error.sentence
        status = error.status
    context = {
        "section": "settings",
        "place": "email",
        "form": form,
        "problem": problem,
        "sent": sent,
        "mails": sending.has_mail_server(),
        "saved": "saved" in request.GET,
    }
    return _with_retry_after(
        render(request, "accounts/email.html", context, status=422 if form.errors else status), form
    )


@never_cache
@require_http_methods(["GET", "POST"])
def sign_up(request: HttpRequest) -> HttpResponseBase:
    """Mail a sign-up link. The page looks the same whether or not an account has the address."""
    is_open = addresses.sign_up_is_open()
    form = SignUpForm(request, request.POST if request.method == "POST" else None)
    accepted = request.method == "POST" and is_open and form.is_valid()
    if accepted and not form.limit_reached:
        origin = site_origin(request)
        addresses.request_account(email=form.cleaned_data["email"], origin=origin)
    status = 404 if not is_open else 422 if form.errors else 200
    context = {"form": form, "asked": accepted, "is_open": is_open}
    return _with_retry_after(render(request, "registration/sign_up.html", context, status=status), form)


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def confirmed(request: HttpRequest) -> HttpResponseBase:
    """Create the account from the mailed link: ask for a user name and a password, then sign the person in."""
    key = request.GET.get("key", "")
    try:
        form = AccountForm(addresses.read_sign_up_address(key), request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            person = addresses.create_account(
                key=key, username=form.cleaned_data["username"], password=form.cleaned_data["new_password1"]
            )
            return redirect(proceed(request, person, reverse("chat:home")))
    except ProductError as error:
        return render(request, "registration/refused.html", {"problem": error.sentence}, status=error.status)
    return render(request, "registration/account.html", {"form": form}, status=422 if form.is_bound else 200)


def _with_retry_after(response: HttpResponse, form: AddressForm) -> HttpResponse:
    if form.retry_after is not None:
        response.status_code = 429
        response["Retry-After"] = str(form.retry_after)
    return response
