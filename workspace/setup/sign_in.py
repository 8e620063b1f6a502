"""The sign-in pages. All of them sign users in through `accounts.access.login`."""

from typing import Any

from django.contrib import admin
from django.contrib.auth import views as auth
from django.contrib.auth.mixins import LoginRequiredMixin
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from accounts.access.login import proceed, providers
from accounts.forms import AdminSignInForm, SignInForm
from accounts.mailing.addresses import sign_up_is_open
from accounts.models import User
from core.permissions import administers
from workspace.setup import services


class SignInView(auth.LoginView):
    """The sign-in page. The first sign-in of the first administrator leads to the setup."""

    redirect_authenticated_user = True
    authentication_form: Any = SignInForm

    def form_valid(self, form: Any) -> HttpResponse:
        person = form.get_user()
        then = self.get_success_url()
        if then == reverse("chat:home") and services.begin_setup(user=person):
            then = reverse("setup:start")
        return redirect(proceed(self.request, person, then))

    def get_context_data(self, **names: Any) -> Any:
        enabled = providers()
        person = self.request.user
        own = person.has_usable_password() if isinstance(person, User) else not any(each.only for each in enabled)
        refused = self.request.GET.get("refused", "")
        return {
            **super().get_context_data(**names),
            "providers": enabled,
            "passwords": own,
            "refused": refused,
            "sign_up": sign_up_is_open(),
        }


class SignInAgainView(LoginRequiredMixin, SignInView):
    """The page on which a signed-in user signs in again. Other users cannot sign in here."""

    redirect_authenticated_user = False
    extra_context = {"again": True}  # noqa: RUF012 - Django's attribute

    def get_form_kwargs(self) -> Any:
        options = super().get_form_kwargs()
        if "data" in options:
            options["data"] = {**options["data"].dict(), "username": self.request.user.get_username()}
        return options


class AdminSignInView(SignInView):
    """The admin's sign-in page."""

    redirect_authenticated_user = False  # a signed-in user may sign in again as an administrator
    authentication_form = AdminSignInForm
    template_name = "admin/login.html"
    next_page = "admin:index"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method == "GET" and isinstance(request.user, User) and administers(request.user):
            return redirect("admin:index")
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **names: Any) -> Any:
        return {
            **super().get_context_data(**names),
            **admin.site.each_context(self.request),
            "title": _("Sign in"),
            "subtitle": None,
            "app_path": self.request.get_full_path(),
            "username": self.request.user.get_username(),
        }
