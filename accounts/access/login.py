"""The one way in: whoever signs in, on whatever page, comes through here, and is asked for a second factor first.

A password alone signs nobody in who has a second factor: `PasswordBackend` then finds nobody. A page that goes on to
ask for the factor says so (`first_of_two`); the session keeps who waits for that. A sensitive act asks for a sign-in
that is no older than `FRESH_FOR`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
WAITS_FOR = 10 * 60  # seconds between the password and the second factor
# In the session: when its person signed in last, that they have a second factor, and who still has to give one.
SIGNED_IN, SECURED, WAITING = "signed_in_at", "second_factor", "waiting_for_second_factor"
# And through which OpenID provider: {"issuer", "sid": its name for the session there}.
THROUGH = "openid_session"
BACKEND = "accounts.access.login.PasswordBackend"

View = Callable[..., HttpResponseBase]


class PasswordBackend(ModelBackend):
    """Django's, for people without a second factor. Named by `AUTHENTICATION_BACKENDS`."""

    def authenticate(self, request: HttpRequest | None, **given: Any) -> Any:  # type: ignore[override]  # by name alone
        """`first_of_two`: who asks goes on to ask for the second factor."""
        first_of_two = given.pop("first_of_two", False)
        user = super().authenticate(request, **given)
        return None if isinstance(user, User) and not first_of_two and has_second_factor(user) else user


@dataclass(frozen=True, slots=True)
class Waiting:
    """Somebody whose password was right, and where they want to go."""

    user: User
    then: str


def proceed(request: HttpRequest, user: User, then: str, *, through: dict[str, str] | None = None) -> str:
    """Signs in who has no second factor. Returns the address to go on at: `then`, or where the factor is asked for.

    `through`: the OpenID provider that has said who it is, as `THROUGH` in the session. What it asks for there is no
    second factor here. Without one raises `provider_only` (403), as `require_own_way`.
    """
    if through is None:
        require_own_way(user)
        request.session.pop(THROUGH, None)
    else:
        request.session[THROUGH] = through
    if not has_second_factor(user):
        enter(request, user)
        return then
    request.session[WAITING] = {
        "user": str(user.pk),
        "password": user.get_session_auth_hash(),  # another password ends the waiting
        "since": int(time.time()),
        "then": then,
    }
    return reverse("login-second")


def providers() -> list[OpenIDProvider]:
    """Through whom people can sign in."""
    return list(OpenIDProvider.objects.filter(enabled=True))


def require_own_way(user: User) -> None:
    """Raises `provider_only` (403) where people sign in through a provider alone, and this is no administrator."""
    only = [each.name for each in providers() if each.only]
    if only and not administers(user):
        sentence = Sentence(
            "This workspace signs people in with {only}, no longer with passwords or passkeys.", only=" or ".join(only)
        )
        raise ProductError("provider_only", sentence, status=403)


def local_address(request: HttpRequest, given: str) -> str:
    """An address of this site to go on at: the given one, or the first page."""
    ours = url_has_allowed_host_and_scheme(given, {request.get_host()}, require_https=request.is_secure())
    return given if ours else reverse(settings.LOGIN_REDIRECT_URL)


def waiting(request: HttpRequest) -> Waiting | None:
    kept = request.session.get(WAITING)
    if kept is None or time.time() - kept["since"] > WAITS_FOR:
        return None
    user = User.objects.filter(pk=kept["user"], is_active=True).first()
    if user is None or user.get_session_auth_hash() != kept["password"]:
        return None
    return Waiting(user, kept["then"])


def enter(request: HttpRequest, user: User) -> None:
    """Signs in; of who is signed in already, only the sign-in is fresh again: their pages stay open.

    Only for who has given all that is asked of them; others go through `proceed`.
    """
    request.session.pop(WAITING, None)
    if request.user.pk != user.pk:
        auth.login(request, user, backend=BACKEND)
    request.session[SIGNED_IN] = int(time.time())
    request.session[SECURED] = has_second_factor(user)
    signed_in(user)


def is_fresh(request: HttpRequest) -> bool:
    return bool(time.time() - request.session.get(SIGNED_IN, 0) <= FRESH_FOR)


def require_fresh(request: HttpRequest) -> None:
    """Raises `fresh_sign_in_needed` (403)."""
    if not is_fresh(request):
        sentence = Sentence("You signed in too long ago for this. Sign in again at /login/again/, or use a token.")
        raise ProductError("fresh_sign_in_needed", sentence, status=403)


def needs_fresh(user: User) -> bool:
    return not user.has_usable_password() or has_second_factor(user)


# A page that opens only to who has signed in a short while ago; others are asked to, and led back. What they send
# instead is refused, as `require_fresh` does. `accounts.second_factors.adapter` answers for both.
fresh_sign_in: Callable[[View], View] = reauthentication_required()
# The same for people who have a second factor or no password; all others the page asks for their password.
fresh_second_factor: Callable[[View], View] = reauthentication_required(
    enabled=lambda request: needs_fresh(request.user)
)


def sign_in_again(request: HttpRequest) -> HttpResponseRedirect:
    """Lead to the page for a fresh sign-in, and from there back.

    Raises `fresh_sign_in_needed` (403) where the request is no page to come back to: a form, or one of a script.
    """
    if request.method != "GET" or request.headers.get("HX-Request"):
        require_fresh(request)
    return HttpResponseRedirect(reverse("login-again", query={"next": request.get_full_path()}))


@dataclass(frozen=True, slots=True)
class Hold:
    """What somebody has to do before anything else opens: on which page, and how a program is told."""

    page: str
    code: str
    sentence: str
    leads_back: bool = False


CHOOSE_PASSWORD = Hold(
    "settings:password",
    "password_change_needed",
    gettext_noop("Your password was chosen by somebody else. Choose one of your own at /settings/password/ first."),
    leads_back=True,
)
SET_UP_FACTOR = Hold(
    "settings:second-factor",
    "second_factor_needed",
    gettext_noop("This workspace asks for a second factor. Set one up at /settings/second-factor/ first."),
)


def hold_of(request: HttpRequest, workspace: Workspace) -> Hold | None:
    """What whoever is signed in by this session has to do first."""
    if isinstance(request.user, User) and request.user.password_once:
        return CHOOSE_PASSWORD
    return SET_UP_FACTOR if is_held_up(request, workspace) else None


def is_held_up(request: HttpRequest, workspace: Workspace) -> bool:
    """Whether whoever is signed in by this session may only set up a second factor."""
    user = request.user
    if not isinstance(user, User) or not is_required(user, workspace) or request.session.get(SECURED):
        return False
    if not has_second_factor(user):
        return True
    request.session[SECURED] = True  # so that the next request need not ask
    return False
