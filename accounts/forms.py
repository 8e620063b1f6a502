"""The forms of the sign-in and of the settings pages.

Services refuse the same values; these forms show the error next to the field.
"""

from datetime import datetime, timedelta
from typing import Any, ClassVar

from django import forms
from django.contrib.auth import authenticate
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from unfold.forms import AuthenticationForm as UnfoldSignInForm

from accounts.access import sign_ins
from accounts.access.login import require_password_sign_in
from accounts.access.login_throttle import LimitedTriesMixin, begin
from accounts.models import User
from core.errors import ProductError

# The meaning of each scope of a token.
SCOPES = {
    "chat": _("Conversations: read them, send messages, follow and stop answers; personas and models."),
    "files": _("Files: upload, read, search and delete them."),
    "projects": _("Projects: their instructions, files, members and search."),
    "tasks": _("Tasks: plan them, run them, read their results."),
    "system": _("System messages: a program that uses OpenAI's protocol replaces the workspace's system prompt."),
    "admin": _("Your account: create and revoke tokens, change settings. For administrators, also the workspace."),
}
DAYS = {"30": _("after 30 days"), "90": _("after 90 days"), "365": _("after a year"), "": _("never")}


class SignInForm(LimitedTriesMixin, AuthenticationForm):
    """Checks a password; `access.login.proceed` asks for the second factor afterwards.

    `provider_only`: the password is right, but the person has to sign in through a provider.
    """

    provider_only = False

    def clean(self) -> Any:
        if self.request is None or not self.cleaned_data.get("username") or not self.cleaned_data.get("password"):
            return super().clean()
        name = self.cleaned_data["username"]
        password = self.cleaned_data["password"]
        try:
            with self.trying(begin(self.request, name)):
                self.user_cache = authenticate(self.request, username=name, password=password, first_of_two=True)
                if self.user_cache is None:
                    raise self.get_invalid_login_error()
                self.confirm_login_allowed(self.user_cache)
                if isinstance(self.user_cache, User):
                    self._require_own_way(self.user_cache)
        except ValidationError:
            sign_ins.sign_in_refused(name)
            raise
        return self.cleaned_data

    def _require_own_way(self, person: User) -> None:
        try:
            require_password_sign_in(person)
        except ProductError as error:
            self.provider_only = True
            raise ValidationError(str(error.sentence), code=error.code) from error


class AdminSignInForm(SignInForm, UnfoldSignInForm):
    """The form of the admin's sign-in page. `settings.UNFOLD` names it."""


class PasswordForm(LimitedTriesMixin, PasswordChangeForm):
    """Changes the password. Tries of the old one are limited, since a stranger may use a signed-in browser."""

    def __init__(self, request: HttpRequest, user: User, data: Any = None) -> None:
        super().__init__(user, data)
        self.request = request
        if not user.has_usable_password():  # the page has asked for a fresh sign-in
            del self.fields["old_password"]

    def clean_old_password(self) -> str:
        with self.trying(begin(self.request, self.user.get_username())):
            try:
                password: str = super().clean_old_password()
            except ValidationError:
                sign_ins.password_refused(self.user)
                raise
        return password


class PreferencesForm(forms.ModelForm[User]):
    class Meta:
        model = User
        fields: ClassVar = [
            *(
                "icon",
                "colour",
                "language",
                "timezone",
                "theme",
                "accepts_model_tasks",
                "asks_before_search",
                "tasks_in_prompts",
            )
        ]


class TokenForm(LimitedTriesMixin, forms.Form):
    """Creates a token. The form asks for the password, so that a stolen session cannot create a lasting token."""

    name = forms.CharField(max_length=100)
    scopes = forms.MultipleChoiceField(
        choices=list(SCOPES.items()), error_messages={"required": _("Choose at least one scope.")}
    )
    days = forms.ChoiceField(choices=list(DAYS.items()), required=False, initial="90")
    password = forms.CharField(strip=False)

    def __init__(self, request: HttpRequest, user: User, data: Any = None) -> None:
        super().__init__(data)
        self.request = request
        self.user = user
        if not user.has_usable_password():  # the page has asked for a fresh sign-in
            del self.fields["password"]

    def clean_password(self) -> str:
        password: str = self.cleaned_data["password"]
        with self.trying(begin(self.request, self.user.get_username())):
            if not self.user.check_password(password):
                sign_ins.password_refused(self.user)
                raise ValidationError(_("This is not your password."), code="wrong_password")
        return password

    @property
    def expires(self) -> datetime | None:
        """Return the time at which the token expires; None if it never does."""
        days = self.cleaned_data["days"]
        return timezone.now() + timedelta(days=int(days)) if days else None
