"""How often pages that anybody may open are opened from one address: so many times a minute, `settings.PAGE_RATES`.

The kinds are `sign-in`, `openid`, where providers sign people out, and `shared`, the pages of shared conversations.
With Redis away nothing is counted.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from accounts.access.login_throttle import address_of
from accounts.access.permissions import WINDOW, counted, require


def limited(kind: str, view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """The view, raising `throttled` (429) once an address has opened pages of the kind too often."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        require(counted(f"pages:{kind}:{address_of(request)}", settings.PAGE_RATES.get(kind, 0), WINDOW), kind)
        return view(request, *args, **kwargs)

    return answer
