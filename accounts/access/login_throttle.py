"""How often passwords and codes may be tried. The numbers are `settings.SIGN_IN_LIMITS`, within a quarter of an hour.

Failures are counted
* `name`: for one name at one address;
* `address`: for one address, whatever the names. Offices have one address for hundreds of people, and one of them may
  guess. So an address that has used up its failures does not close: the first try of each name is still looked at, up
  to `crowd` names. Such a try succeeds when it is right; a wrong one is answered like those that nobody looked at. So
  somebody who guesses at such an address has one try a name, 96 a day, where `name` alone allows 960. Each person who
  comes in gives one failure of the address back, most likely their own;
* `codes`: for the second factor of one person from all addresses, within a day of the clock.

Codes. Whoever tries one knows the password. They are counted for the person at an address (`name`), so wrong codes
from elsewhere do not keep the owner out. An app's code has 6 digits and 3 are right at a time, so a try is right with
3 / 10^6. With 200 tries a day in all, that is 0.06 % a day. (The rule before, 10 each quarter of an hour from all
addresses, allowed 960 a day: 0.29 %.) Recovery codes have 8 digits, 10 are right, and a try is right with 10^-7: that
is 0.002 % a day. They are counted apart, so that they open the account of somebody whose app codes others have used up.

A name that nobody has counts like any other, so nothing here tells which names exist. A try is counted before the
password is looked at and taken back when it was right: thousands at the same moment do not get past the count. With
Redis away nothing is counted.
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
from core.api.rate_limit import Allowance, counted, forget, take_back
from core.errors import ProductError
from core.sentences import Sentence

WINDOW = 15 * 60  # seconds
DAY = 24 * 60 * 60  # seconds
MAILS = 3  # to one e-mail address within a window
HOME_PREFIX = 64  # bits of an IPv6 address that a subscriber does not choose (RFC 6177)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try, counted. An allowance is None where that is not limited, could not be counted, or does not matter.

    `first` and `crowd` count the first tries of names at an address that has used up its failures. `codes` counts those
    of a person's second factor from all addresses. `came_in` is the key under which a success is counted once.
    """

    pair: Allowance | None
    address: Allowance | None
    first: Allowance | None = None
    crowd: Allowance | None = None
    codes: Allowance | None = None
    came_in: str = ""

    @property
    def retry_after(self) -> int | None:
        """Seconds until the next try, when this one is one too many: then the password must not be looked at."""
        of_address = (self.address,) if self.first is None else (self.first, self.crowd)
        bounds = (self.pair, *of_address, self.codes)
        return max((each.reset for each in bounds if each and each.exceeded), default=None)

    @property
    def retry_after_failure(self) -> int | None:
        """Seconds until the next try, where a wrong one has to be answered as if nobody had looked at it."""
        return self.address.reset if self.address and self.address.exceeded else None

    def succeeded(self) -> None:
        """The person is who they say; what failed from this address under other names still counts."""
        for own in (self.pair, self.first):
            if own is not None:
                forget(own)
        if self.crowd is not None:
            take_back(self.crowd)
        if self.codes is not None:
            take_back(self.codes)
        if self.address is not None:
            again = counted(self.came_in, 1, WINDOW)
            take_back(self.address, 1 if again is None or again.exceeded else 2)


def confirm(request: HttpRequest, user: User, password: str) -> None:
    """Asks somebody who is signed in for their password, before what a stolen session must not do.

    Raises `password_needed` and `wrong_password` (403), and `throttled` (429) after too many wrong ones.
    """
    if not password:
        sentence = Sentence("Send your password along as “password”: being signed in is not enough for this.")
        raise ProductError("password_needed", sentence, status=403)
    attempt = begin(request, user.get_username())
    require_look(attempt.retry_after)
    if not user.check_password(password):
        password_refused(user)
        require_look(attempt.retry_after_failure)
        raise ProductError("wrong_password", "This is not your password. Nothing was made.", status=403)
    attempt.succeeded()


def require_look(retry_after: int | None) -> None:
    """Raises `throttled` (429) while no password is looked at for so many seconds; None is no limit."""
    if retry_after is not None:
        sentence = Sentence("Too many passwords were wrong. Try again in {retry_after} s.", retry_after=retry_after)
        raise ProductError("throttled", sentence, status=429, retry_after=retry_after)


def require_tries(retry_after: int | None) -> None:
    """Raises `ValidationError` while nothing is looked at for so many seconds; None is no limit."""
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
    """Limit the tries of a form of passwords or codes. `retry_after`: seconds until the next try; None is no limit."""

    retry_after: int | None = None

    @contextmanager
    def trying(self, attempt: Attempt) -> Iterator[None]:
        """Count a try, which a `ValidationError` ends as a failure. Raises one while nothing is looked at."""
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
    """Counts a try to sign in as `name`."""
    return _begin(name, address_of(request))


def begin_code(request: HttpRequest, user: User, kind: str) -> Attempt:
    """Counts a try of a code of this person's second factor, of the `kind` “app” or “recovery”."""
    attempt = _begin(f"code:{kind}:{user.pk}", address_of(request))
    if attempt.retry_after is not None:
        return attempt
    return replace(attempt, codes=_counted("codes", f"{kind}:{user.pk}", "all addresses", DAY))


def _begin(name: str, address: str) -> Attempt:
    """Count a try. One that a count refuses uses up nothing of the other counts."""
    # Hashed: a name may be of any length, and people type passwords where the name belongs.
    who = hashlib.sha256(f"{name}\0{address}".encode()).hexdigest()
    pair = _counted("name", who, address)
    if pair is not None and pair.exceeded:
        return Attempt(pair, None)
    of_address, came_in = _counted("address", address, address), f"sign-in:came-in:{who}"
    if of_address is None or not of_address.exceeded:
        return Attempt(pair, of_address, came_in=came_in)
    first = counted(f"sign-in:first:{who}", 1, WINDOW)
    crowd = None if first is None or first.exceeded else _counted("crowd", address, address)
    return Attempt(pair, of_address, first, crowd, came_in=came_in)


def begin_mail(request: HttpRequest, email: str) -> Attempt:
    """Counts a mail to this e-mail address that somebody has asked for, who may ask for it from many."""
    address = address_of(request)
    name = hashlib.sha256(email.lower().encode()).hexdigest()
    return Attempt(counted(f"mail:{name}", MAILS, WINDOW), _counted("address", f"mail:{address}", address))


def _counted(kind: str, what: str, address: str, seconds: int = WINDOW) -> Allowance | None:
    limit = settings.SIGN_IN_LIMITS.get(kind, 0)
    allowance = counted(f"sign-in:{kind}:{what}", limit, seconds)
    if limit and allowance is None:
        logger.warning("Redis is away: tries of passwords are not counted")
    if allowance is not None and allowance.used == limit + 1:
        logger.warning("%d wrong passwords from %s for one %s: no more are looked at for now", limit, address, kind)
    return allowance


def address_of(request: HttpRequest) -> str:
    """The client's address as `settings.TRUSTED_PROXIES` proxies of ours saw it; of IPv6 the network of the subscriber.

    Each proxy adds to the end of X-Forwarded-For whom it was called by; what stands before that anybody may have sent.
    """
    return client_address(str(request.META.get("REMOTE_ADDR", "")), request.headers.get("X-Forwarded-For", ""))


def client_address(direct: str, forwarded: str) -> str:
    """The same of a connection from `direct` whose request has this `X-Forwarded-For`."""
    seen = [each.strip() for each in forwarded.split(",") if each.strip()]
    if settings.TRUSTED_PROXIES and seen:
        return _network(seen[-min(settings.TRUSTED_PROXIES, len(seen))]) or _network(direct)
    return _network(direct)


def _network(text: str) -> str:
    """Empty for what is no address, as of a connection through a Unix socket."""
    try:
        address = ip_address(text)
    except ValueError:
        return ""
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or ip_network((address, HOME_PREFIX), strict=False))
