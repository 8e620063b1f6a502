"""How often a password may be tried: so many failures in a quarter of an hour of the clock, `settings.SIGN_IN_LIMITS`.

Failures are counted for a name at an address, and for an address whatever the names. A name that nobody has counts like
any other, so nothing here tells which names there are. A try is counted before the password is looked at and taken
back when it was right: thousands at the same moment do not get past the count. With Redis away nothing is counted.
"""

import hashlib
import logging
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from math import ceil

from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import ngettext

from accounts.access.permissions import Allowance, counted, forget, take_back
from accounts.access.sign_ins import password_refused
from accounts.models import User
from core.errors import ProductError

WINDOW = 15 * 60  # seconds
MAILS = 3  # to one e-mail address within a window
HOME_PREFIX = 64  # bits of an IPv6 address that a subscriber does not choose (RFC 6177)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try, counted; either allowance is None where that is not limited or could not be counted."""

    pair: Allowance | None
    address: Allowance | None

    @property
    def retry_after(self) -> int | None:
        """Seconds until the next try, when this one is one too many: then the password must not be looked at."""
        return max((each.reset for each in (self.pair, self.address) if each and each.exceeded), default=None)

    def succeeded(self) -> None:
        """The person is who they say; what failed from this address under other names still counts."""
        if self.pair is not None:
            forget(self.pair)
        if self.address is not None:
            take_back(self.address)


def confirm(request: HttpRequest, user: User, password: str) -> None:
    """Asks somebody who is signed in for their password, before what a stolen session must not do.

    Raises `password_needed` and `wrong_password` (403), and `throttled` (429) after too many wrong ones.
    """
    if not password:
        sentence = "Send your password along as “password”: being signed in is not enough for this."
        raise ProductError("password_needed", sentence, status=403)
    attempt = begin(request, user.get_username())
    if attempt.retry_after is not None:
        sentence = f"Too many passwords were wrong. Try again in {attempt.retry_after} s."
        raise ProductError("throttled", sentence, status=429, retry_after=attempt.retry_after)
    if not user.check_password(password):
        password_refused(user)
        raise ProductError("wrong_password", "This is not your password. Nothing was made.", status=403)
    attempt.succeeded()


def require_tries(attempt: Attempt) -> None:
    """Raises `ValidationError` for a try that is one too many."""
    if attempt.retry_after is None:
        return
    minutes = ceil(attempt.retry_after / 60)
    sentence = ngettext(
        "Too many attempts have failed. Try again in %(minutes)d minute.",
        "Too many attempts have failed. Try again in %(minutes)d minutes.",
        minutes,
    )
    raise ValidationError(sentence % {"minutes": minutes}, code="throttled")


def begin(request: HttpRequest, name: str) -> Attempt:
    """Counts a try to sign in as `name`."""
    address = address_of(request)
    # Hashed: a name may be of any length, and people type passwords where the name belongs.
    pair = _counted("name", hashlib.sha256(f"{name}\0{address}".encode()).hexdigest(), address)
    # Whoever is turned away already uses up nobody else's tries at the same address.
    shared = None if pair is not None and pair.exceeded else _counted("address", address, address)
    return Attempt(pair, shared)


def begin_code(request: HttpRequest, user: User) -> Attempt:
    """Counts a try of a code of this person's second factor, from whatever address: a code is short, and who tries one
    knows the password."""
    address = address_of(request)
    pair = _counted("name", f"code:{user.pk}", address)
    return Attempt(pair, None if pair is not None and pair.exceeded else _counted("address", address, address))


def begin_mail(request: HttpRequest, email: str) -> Attempt:
    """Counts a mail to this e-mail address that somebody has asked for, who may ask for it from many."""
    address = address_of(request)
    name = hashlib.sha256(email.lower().encode()).hexdigest()
    return Attempt(counted(f"mail:{name}", MAILS, WINDOW), _counted("address", f"mail:{address}", address))


def _counted(kind: str, what: str, address: str) -> Allowance | None:
    limit = settings.SIGN_IN_LIMITS[kind]
    allowance = counted(f"sign-in:{kind}:{what}", limit, WINDOW)
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
