"""Limit the requests per minute from one address to the public pages (`settings.PAGE_RATES`).

The kinds of pages:

* `sign-in`: requests that only show a sign-in page. They are cheap, and an office sends many of them at 9 o'clock.
* `attempts`: requests that begin or complete a sign-in. Each sign-in method has its own count, so that a flood of one
  does not block the others. A successful sign-in removes its own requests from the count. So only failed and unfinished
  attempts are counted, and 300 people behind one address may sign in within the same minute. An attempt that
  `accounts.access.login_throttle` refuses is removed, too. It costs nothing, and an attacker must not block the page
  for other people at the same address.
* `openid`: the pages through which identity providers sign people out.
* `shared`: the pages of shared conversations.

Nothing is counted while Redis is unavailable.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from accounts.access.login import PENDING, SIGNED_IN
from accounts.access.login_throttle import address_of
from core.api.rate_limit import WINDOW, count_in_window, refund, require_within_limit

View = Callable[..., HttpResponseBase]
REFUSED = 429  # the status of an attempt whose password was not checked
MAX_FREE = 10  # sign-ins per person and minute that are not counted; each costs a password hash


def limited(kind: str, view: View) -> View:
    """Wrap a view so that it raises `throttled` (429) if an address requests pages of this kind too often."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        require_within_limit(
            count_in_window(f"pages:{kind}:{address_of(request)}", settings.PAGE_RATES.get(kind, 0), WINDOW), kind
        )
        return view(request, *args, **kwargs)

    return answer


def limited_sign_in(way: str, view: View, *, requests: int = 1, get_works: bool = False) -> View:
    """Wrap the view of a sign-in step so that it raises `throttled` (429) after too many attempts with this method.

    `way`: the sign-in method. `requests`: the number of requests of a complete sign-in that ends with this step.
    `get_works`: a GET request counts as an attempt, too.
    """
    limited_page = limited("sign-in", view)

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method in ("GET", "HEAD") and not get_works:
            return limited_page(request, *args, **kwargs)
        limit = settings.PAGE_RATES.get("attempts", 0)
        attempt = count_in_window(f"pages:attempts:{way}:{address_of(request)}", limit, WINDOW)
        require_within_limit(attempt, "attempts")
        previous = _progress(request)
        response = view(request, *args, **kwargs)
        if attempt is not None and response.status_code == REFUSED:
            refund(attempt)
        elif attempt is not None and (progress := _progress(request)) and progress != previous and _is_free(progress):
            refund(attempt, requests)
        return response

    return answer


class SignInProgress(NamedTuple):
    """The person who has signed in, or has yet to enter the second factor. `since` is in Unix time."""

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
    allowance = count_in_window(f"pages:came-in:{progress.person}", MAX_FREE, WINDOW)
    return allowance is None or not allowance.exceeded
