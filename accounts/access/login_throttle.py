"""Limit the attempts to enter passwords and codes: `settings.SIGN_IN_LIMITS`, within 15 minutes.

Failures are counted by
* `name`: for one name at one address;
* `address`: for one address, whatever the names. An office may share one address among hundreds of people, and one of
  them may guess passwords. So an address that has used up its failures is not blocked: the first try of each name is
  still checked, up to `crowd` names. If such a try is right, it succeeds. If it is wrong, it gets the same answer as an
  unchecked try. An attacker at such an address therefore has one try per name and window, 96 a day, where `name` alone
  allows 960. Each user who signs in takes back one failure of the address, most likely their own;
* `codes`: for the second factor of one user from all addresses, within a calendar day.

Codes: a person who tries a code has already given the password. Codes are counted per user and address (`name`), so
wrong codes from other addresses do not lock the owner out. An app's code has 6 digits and 3 codes are valid at a time,
so a random code is right with probability 3 / 10^6. With 200 tries a day in all, that is 0.06 % a day. (The previous
rule, 10 each 15 minutes from all addresses, allowed 960 a day: 0.29 %.) Recovery codes have 8 digits and 10 are valid,
so a random code is right with probability 10^-7: that is 0.002 % a day. They are counted separately, so that they still
work after an attacker has used up the tries for the app's codes.

A name without an account counts like any other, so nothing here reveals which names exist. A try is counted before the
password is checked, and taken back if the password was right. So thousands of simultaneous tries cannot get past the
count. While Redis is unavailable, nothing is counted.
"""

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network
from math import ceil

from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import ngettext

from accounts.access.sign_ins import password_refused
from accounts.models import User
from core.api.rate_limit import RateAllowance, count_in_window, refund, reset
from core.errors import ProductError
from core.sentences import Sentence

WINDOW = 15 * 60  # seconds
DAY = 24 * 60 * 60  # seconds
MAX_MAILS = 3  # to one e-mail address within a window
IPV6_PREFIX_BITS = 64  # which a subscriber does not choose (RFC 6177)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One counted try. An allowance is None without a limit, while Redis is unavailable, or if it is not needed.

    `first` and `crowd` count the first try of each name at an address that has used up its failures. `codes` counts the
    tries of a user's second factor from all addresses. `success_key` is the key under which a success is counted once.
    """

    pair: RateAllowance | None
    address: RateAllowance | None
    first: RateAllowance | None = None
    crowd: RateAllowance | None = None
    codes: RateAllowance | None = None
    success_key: str = ""

    @property
    def retry_after(self) -> int | None:
        """Return the seconds until the next try if this one is over a limit. Then the password must not be checked."""
        address_limits = (self.address,) if self.first is None else (self.first, self.crowd)
        bounds = (self.pair, *address_limits, self.codes)
        return max((each.reset for each in bounds if each and each.exceeded), default=None)

    @property
    def retry_after_failure(self) -> int | None:
        """Return the seconds until the next try if a wrong password must look like an unchecked one, else None."""
        return self.address.reset if self.address and self.address.exceeded else None

    def succeeded(self) -> None:
        """Remove the try from the counts, since it was right. Failures of other names at this address still count."""
        for own in (self.pair, self.first):
            if own is not None:
                reset(own)
        if self.crowd is not None:
            refund(self.crowd)
        if self.codes is not None:
            refund(self.codes)
        if self.address is not None:
            again = count_in_window(self.success_key, 1, WINDOW)
            refund(self.address, 1 if again is None or again.exceeded else 2)


def confirm_password(request: HttpRequest, user: User, password: str) -> None:
    """Check the password of a signed-in user, before an act that must not be possible with a stolen session.

    Raises `password_needed` and `wrong_password` (403), and `throttled` (429) after too many wrong ones.
    """
    if not password:
        sentence = Sentence("This also needs your password. Send it as “password”.")
        raise ProductError("password_needed", sentence, status=403)
    attempt = begin(request, user.get_username())
    require_password_tries(attempt.retry_after)
    if not user.check_password(password):
        password_refused(user)
        require_password_tries(attempt.retry_after_failure)
        raise ProductError("wrong_password", "This is not your password. Nothing was created.", status=403)
    attempt.succeeded()


def require_password_tries(retry_after: int | None) -> None:
    """Raise `throttled` (429) if passwords are not checked for another `retry_after` seconds. None means no limit."""
    if retry_after is not None:
        sentence = Sentence("Too many passwords were wrong. Try again in {retry_after} s.", retry_after=retry_after)
        raise ProductError("throttled", sentence, status=429, retry_after=retry_after)


def require_tries(retry_after: int | None) -> None:
    """Raise `ValidationError` if nothing is checked for another `retry_after` seconds. None means no limit."""
    if retry_after is None:
        return
    minutes = ceil(retry_after / 60)
    sentence = ngettext(
        "Too many attempts have failed. Try again in %(minutes)d minute.",
        "Too many attempts have failed. Try again in %(minutes)d minutes.",
        minutes,
    )
    raise ValidationError(sentence % {"minutes": minutes}, code="throttled")


class LimitedTriesMixin:
    """Limit the tries in a form for passwords or codes. `retry_after`: seconds until the next try; None: no limit."""

    retry_after: int | None = None

    @contextmanager
    def trying(self, attempt: Attempt) -> Iterator[None]:
        """Count a try. A `ValidationError` in the block makes it a failure. Raises one if the limit is reached."""
        self._require_tries(attempt.retry_after)
        try:
            yield
        except ValidationError:
            self._require_tries(attempt.retry_after_failure)
            raise
        attempt.succeeded()

    def _require_tries(self, retry_after: int | None) -> None:
        self.retry_after = retry_after
        require_tries(retry_after)


def begin(request: HttpRequest, name: str) -> Attempt:
    """Count a try to sign in as `name`."""
    return _begin(name, address_of(request))


def begin_code(request: HttpRequest, user: User, kind: str) -> Attempt:
    """Count a try of a code for this user's second factor. `kind` is “app” or “recovery”."""
    attempt = _begin(f"code:{kind}:{user.pk}", address_of(request))
    if attempt.retry_after is not None:
        return attempt
    return replace(attempt, codes=_count("codes", f"{kind}:{user.pk}", "all addresses", DAY))


def _begin(name: str, address: str) -> Attempt:
    """Count a try. If one limit refuses it, the later counters are not touched."""
    # Hashed, since a name may have any length, and people sometimes type their password into the name field.
    key = hashlib.sha256(f"{name}\0{address}".encode()).hexdigest()
    pair = _count("name", key, address)
    if pair is not None and pair.exceeded:
        return Attempt(pair, None)
    address_count = _count("address", address, address)
    success_key = f"sign-in:came-in:{key}"
    if address_count is None or not address_count.exceeded:
        return Attempt(pair, address_count, success_key=success_key)
    first = count_in_window(f"sign-in:first:{key}", 1, WINDOW)
    crowd = None if first is None or first.exceeded else _count("crowd", address, address)
    return Attempt(pair, address_count, first, crowd, success_key=success_key)


def begin_mail(request: HttpRequest, email: str) -> Attempt:
    """Count a requested mail to this e-mail address; a person may request it from many addresses."""
    address = address_of(request)
    name = hashlib.sha256(email.lower().encode()).hexdigest()
    return Attempt(count_in_window(f"mail:{name}", MAX_MAILS, WINDOW), _count("address", f"mail:{address}", address))


def _count(kind: str, subject: str, address: str, seconds: int = WINDOW) -> RateAllowance | None:
    limit = settings.SIGN_IN_LIMITS.get(kind, 0)
    allowance = count_in_window(f"sign-in:{kind}:{subject}", limit, seconds)
    if limit and allowance is None:
        logger.warning("Redis is unavailable: tries of passwords are not counted")
    if allowance is not None and allowance.used == limit + 1:
        logger.warning(
            "%d wrong passwords from %s for one %s: further ones are not checked for now", limit, address, kind
        )
    return allowance


def address_of(request: HttpRequest) -> str:
    """Return the client's address as the `settings.TRUSTED_PROXIES` proxies saw it, or the /64 network for IPv6.

    Each proxy appends the address of its caller to X-Forwarded-For. A client may have forged the earlier entries.
    """
    return client_address(str(request.META.get("REMOTE_ADDR", "")), request.headers.get("X-Forwarded-For", ""))


def client_address(direct: str, forwarded: str) -> str:
    """Return the client's address, from the peer address `direct` and the header `X-Forwarded-For`."""
    entries = [each.strip() for each in forwarded.split(",") if each.strip()]
    if settings.TRUSTED_PROXIES and entries:
        return _network(entries[-min(settings.TRUSTED_PROXIES, len(entries))]) or _network(direct)
    return _network(direct)


def _network(text: str) -> str:
    """Return an IPv4 address unchanged, and the network of an IPv6 address; empty for any other text."""
    try:
        address = ip_address(text)
    except ValueError:
        return ""
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or ip_network((address, IPV6_PREFIX_BITS), strict=False))
