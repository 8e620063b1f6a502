"""The steps of a sign-in, for all pages.

1. The page checks the first factor. `PasswordBackend` refuses a password alone if the person has a second factor. A
   page that asks for the second factor next passes `first_of_two`.
2. The page calls `proceed`. It signs in a person without a second factor. For any other it stores the pending sign-in
   in the session and returns the address of the page for the second factor.
3. That page calls `pending_sign_in`, checks the factor, and calls `complete_sign_in`.

A sensitive act requires a sign-in that is no older than `FRESH_FOR`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

from allauth.account.decorators import reauthentication_required
from django.conf import settings
from django.contrib import auth
from django.contrib.auth.backends import ModelBackend
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext_noop

from accounts.access.second_factor import has_second_factor, is_required
from accounts.access.sign_ins import signed_in
from accounts.models import OpenIDProvider, User
from core.errors import ProductError
from core.permissions import administers
from core.sentences import Sentence
from workspace.models import Workspace

FRESH_FOR = 15 * 60  # seconds
SECOND_FACTOR_SECONDS = 10 * 60  # seconds between the password and the second factor
# Keys of the session.
SIGNED_IN = "signed_in_at"  # the time of the last sign-in, in Unix time
SECURED = "second_factor"  # whether the person has a second factor
PENDING = "waiting_for_second_factor"  # the sign-in that still needs a second factor, a `_StoredSignIn`
OPENID_SESSION = "openid_session"  # the session at the OpenID provider, an `OpenIDSession`
BACKEND = "accounts.access.login.PasswordBackend"

View = Callable[..., HttpResponseBase]


class PasswordBackend(ModelBackend):
    """Django's backend, for people without a second factor. `AUTHENTICATION_BACKENDS` names it."""

    def authenticate(  # type: ignore[override]  # Django passes credentials by name
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        first_of_two: bool = False,
    ) -> Any:
        """Return the user if the password is right. `first_of_two`: the caller asks for the second factor next."""
        user = super().authenticate(request, username, password)
        return None if isinstance(user, User) and not first_of_two and has_second_factor(user) else user


class OpenIDSession(TypedDict):
    """A person's session at an OpenID provider. `sid`: the provider's name for it, or empty."""

    issuer: str
    sid: str


class _StoredSignIn(TypedDict):
    """A pending sign-in in the session. `password`: the hash of the password; `since`: in Unix time."""

    user: str
    password: str
    since: int
    then: str


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """A person whose password was right but whose second factor is missing. `then`: the address to open afterwards."""

    user: User
    then: str


def proceed(request: HttpRequest, user: User, then: str, *, through: OpenIDSession | None = None) -> str:
    """Sign in a person without a second factor. Returns the next address: `then`, or the page for the second factor.

    `through`: the session at the OpenID provider that has identified the person. A second factor at the provider does
    not count here. Without `through` it raises `provider_only` (403), as `require_password_sign_in` does.
    """
    if through is None:
        require_password_sign_in(user)
        request.session.pop(OPENID_SESSION, None)
    else:
        request.session[OPENID_SESSION] = through
    if not has_second_factor(user):
        complete_sign_in(request, user)
        return then
    stored: _StoredSignIn = {
        "user": str(user.pk),
        "password": user.get_session_auth_hash(),  # another password ends the pending sign-in
        "since": int(time.time()),
        "then": then,
    }
    request.session[PENDING] = stored
    return reverse("login-second")


def providers() -> list[OpenIDProvider]:
    """Return the providers through which people can sign in."""
    return list(OpenIDProvider.objects.filter(enabled=True))


def require_password_sign_in(user: User) -> None:
    """Raise `provider_only` (403) if people sign in only through a provider. Administrators are exempt."""
    names = [each.name for each in providers() if each.only]
    if names and not administers(user):
        sentence = Sentence(
            "You can sign in to this workspace only with {only}, not with a password or passkey.",
            only=" or ".join(names),
        )
        raise ProductError("provider_only", sentence, status=403)


def local_address(request: HttpRequest, address: str) -> str:
    """Return the address if it belongs to this site, else the first page."""
    is_local = url_has_allowed_host_and_scheme(address, {request.get_host()}, require_https=request.is_secure())
    return address if is_local else reverse(settings.LOGIN_REDIRECT_URL)


def pending_sign_in(request: HttpRequest) -> PendingSignIn | None:
    """Return the sign-in that still needs a second factor, or None if there is none or it has expired."""
    stored: _StoredSignIn | None = request.session.get(PENDING)
    if stored is None or time.time() - stored["since"] > SECOND_FACTOR_SECONDS:
        return None
    user = User.objects.filter(pk=stored["user"], is_active=True).first()
    if user is None or user.get_session_auth_hash() != stored["password"]:
        return None
    return PendingSignIn(user, stored["then"])


def complete_sign_in(request: HttpRequest, user: User) -> None:
    """Sign in a person who has entered all required factors. For all others call `proceed`.

    A person who is signed in already keeps the session, so that their pages stay open. Only the time of the sign-in
    changes.
    """
    request.session.pop(PENDING, None)
    if request.user.pk != user.pk:
        auth.login(request, user, backend=BACKEND)
    request.session[SIGNED_IN] = int(time.time())
    request.session[SECURED] = has_second_factor(user)
    signed_in(user)


def is_fresh(request: HttpRequest) -> bool:
    return bool(time.time() - request.session.get(SIGNED_IN, 0) <= FRESH_FOR)


def require_fresh(request: HttpRequest) -> None:
    """Raise `fresh_sign_in_needed` (403) for a sign-in that is older than `FRESH_FOR`."""
    if not is_fresh(request):
        sentence = Sentence("This needs a recent sign-in. Sign in again at /login/again/, or use a token.")
        raise ProductError("fresh_sign_in_needed", sentence, status=403)


def needs_fresh(user: User) -> bool:
    return not user.has_usable_password() or has_second_factor(user)


# Opens a page only after a fresh sign-in. All other people are redirected to sign in and then back to the page. If they
# submit a form, it is refused as by `require_fresh`. `accounts.second_factors.adapter` handles both.
fresh_sign_in: Callable[[View], View] = reauthentication_required()
# The same, but only for people with a second factor or without a password. The page asks all others for their password.
fresh_second_factor: Callable[[View], View] = reauthentication_required(
    enabled=lambda request: needs_fresh(request.user)
)


def sign_in_again(request: HttpRequest) -> HttpResponseRedirect:
    """Redirect to the page for a fresh sign-in, which redirects back to this page.

    Raises `fresh_sign_in_needed` (403) for a form or a request of a script, since a redirect cannot repeat those.
    """
    if request.method != "GET" or request.headers.get("HX-Request"):
        require_fresh(request)
    return HttpResponseRedirect(reverse("login-again", query={"next": request.get_full_path()}))


@dataclass(frozen=True, slots=True)
class RequiredAction:
    """An action that a person must take on `page` before any other page opens. Programs get `code` and `sentence`."""

    page: str
    code: str
    sentence: str
    leads_back: bool = False


CHOOSE_PASSWORD = RequiredAction(
    "settings:password",
    "password_change_needed",
    gettext_noop("Another person chose your password. Choose one of your own at /settings/password/ first."),
    leads_back=True,
)
SET_UP_FACTOR = RequiredAction(
    "settings:second-factor",
    "second_factor_needed",
    gettext_noop("This workspace asks for a second factor. Set one up at /settings/second-factor/ first."),
)


def required_action(request: HttpRequest, workspace: Workspace) -> RequiredAction | None:
    """Return the action that the person of this session must take first, or None."""
    if isinstance(request.user, User) and request.user.password_once:
        return CHOOSE_PASSWORD
    return SET_UP_FACTOR if must_set_up_factor(request, workspace) else None


def must_set_up_factor(request: HttpRequest, workspace: Workspace) -> bool:
    """Return whether the person of this session has to set up a second factor before any other page opens."""
    user = request.user
    if not isinstance(user, User) or not is_required(user, workspace) or request.session.get(SECURED):
        return False
    if not has_second_factor(user):
        return True
    request.session[SECURED] = True  # saves the query of the next request
    return False
