"""Limits of how often one address opens the public pages in a minute: `settings.PAGE_RATES`.

The kinds are

* `sign-in`: the sign-in pages when they are only shown. They are cheap, and an office opens many at nine.
* `attempts`: requests that begin or try a sign-in. Each way has its own count, so that a flood of one does not close
  the others. A sign-in takes back its own requests. So only failed and unfinished attempts stay counted, and 300 people
  behind one address may sign in within the same minute. A try that `accounts.access.login_throttle` has refused is
  taken back, too: it cost nothing, and an attacker must not close the page for other people at the same address.
* `openid`, where providers sign people out, and `shared`, the pages of shared conversations.

While Redis is away nothing is counted.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from accounts.access.login import PENDING, SIGNED_IN
from accounts.access.login_throttle import address_of
from core.api.rate_limit import WINDOW, count_in_window, require, take_back

View = Callable[..., HttpResponseBase]
REFUSED = 429  # the status of an unchecked try
MOST_FREE = 10  # sign-ins of one person a minute that are taken back: each costs the hashing of a password


def limited(kind: str, view: View) -> View:
    """Return the view, raising `throttled` (429) once an address has opened pages of the kind too often."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        require(count_in_window(f"pages:{kind}:{address_of(request)}", settings.PAGE_RATES.get(kind, 0), WINDOW), kind)
        return view(request, *args, **kwargs)

    return answer


def limited_sign_in(way: str, view: View, *, requests: int = 1, get_works: bool = False) -> View:
    """Return the view of a step of a sign-in, raising `throttled` (429) after too many attempts of this `way`.

    `requests`: the number of requests of a sign-in that ends with this step, the step itself included. `get_works`: a
    GET is an attempt as well.
    """
    limited_page = limited("sign-in", view)

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method in ("GET", "HEAD") and not get_works:
            return limited_page(request, *args, **kwargs)
        limit = settings.PAGE_RATES.get("attempts", 0)
        attempt = count_in_window(f"pages:attempts:{way}:{address_of(request)}", limit, WINDOW)
        require(attempt, "attempts")
        before = _progress(request)
        response = view(request, *args, **kwargs)
        if attempt is not None and response.status_code == REFUSED:
            take_back(attempt)
        elif attempt is not None and (after := _progress(request)) and after != before and _is_free(after):
            take_back(attempt, requests)
        return response

    return answer


class SignInProgress(NamedTuple):
    """The person who has signed in, or still has to give the second factor. `since` is in Unix time."""

    person: str
    since: int
    is_in: bool


def _progress(request: HttpRequest) -> SignInProgress | None:
    pending = request.session.get(PENDING)
    if pending:
        return SignInProgress(pending["user"], pending["since"], is_in=False)
    since = request.session.get(SIGNED_IN, 0)
    return SignInProgress(str(request.user.pk), since, is_in=True) if request.user.is_authenticated else None


def _is_free(progress: SignInProgress) -> bool:
    allowance = count_in_window(f"pages:came-in:{progress.person}", MOST_FREE, WINDOW)
    return allowance is None or not allowance.exceeded
