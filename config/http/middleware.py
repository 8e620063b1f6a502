"""What every request gets: an id, a content security policy, its person's language and time zone,
and its errors in words."""

import codecs
import logging
import re
import secrets
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed
from django.middleware.gzip import GZipMiddleware
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.functional import SimpleLazyObject
from django.utils.translation.trans_real import get_supported_language_variant, parse_accept_lang_header
from opentelemetry.trace import INVALID_SPAN, Span

from accounts.access.authentication import bearer
from accounts.access.login import required_action
from accounts.access.login_throttle import address_of
from accounts.access.sessions import note_visit
from accounts.models import User
from config.http import problems
from config.http.problems import Request
from core.audit.origin import How, Origin, acting
from core.errors import ProductError
from core.logs import tracing
from core.logs.context import add_log_fields
from core.logs.metrics import REQUESTS
from core.sentences import Sentence
from workspace.models import Workspace
from workspace.models.settings import workspace_of

logger = logging.getLogger(__name__)
WATCHED = ("/livez", "/readyz", "/metrics")  # asked often, by what reads no language
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
GetResponse = Callable[[HttpRequest], HttpResponse]


# Nothing inline but what carries the request's nonce, nothing from elsewhere. The admin's own scripts (Alpine.js)
# evaluate expressions and set styles, so that part of the site, for staff only, gets a looser policy.
_PAGES = (
    "default-src 'self'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data: "
    "blob:; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_ADMIN = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class RequestIdMiddleware:
    """`X-Request-ID` of the caller when it is a plain word, else a new one; sent back with every response.

    Pages also say when their request began, in Unix time: their socket asks what has changed since.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: Request) -> HttpResponse:
        given = request.headers.get("X-Request-ID", "")
        plain = given.replace("-", "").isalnum() and given.isascii() and len(given) <= 64
        request.request_id = given if plain else uuid.uuid4().hex
        request.began = f"{time.time():.3f}"
        add_log_fields(request_id=request.request_id)
        method = request.method if request.method in METHODS else ""
        began = time.monotonic()
        with _traced(request, method) as span:
            response = self.get_response(request)
            view = request.resolver_match.view_name if request.resolver_match else ""
            span.update_name(f"{method} {view}")
            span.set_attribute("http.response.status_code", response.status_code)
            if response.status_code >= 500:
                tracing.fail(span, str(response.status_code))
        REQUESTS.labels(view, method, f"{response.status_code // 100}xx").observe(time.monotonic() - began)
        response["X-Request-ID"] = request.request_id
        return response


def _traced(request: Request, method: str) -> AbstractContextManager[Span]:
    if request.path in WATCHED or request.path.startswith(settings.STATIC_URL):
        return nullcontext(INVALID_SPAN)
    return tracing.of_request(method, request.request_id, request.headers.get("traceparent", ""))


class OriginMiddleware:
    """What the audit says of every act of a request: by which door it came, from where, and the request's id."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: Request) -> HttpResponse:
        door = How.ADMIN if request.path.startswith("/admin/") else How.API if is_program(request) else How.PAGE
        with acting(Origin(door, address_of(request), request.request_id, recorded=set())):
            return self.get_response(request)


def is_program(request: HttpRequest) -> bool:
    return problems.is_api(request.path) or bearer(request) is not None


class PageCompressionMiddleware(GZipMiddleware):
    """Pages only, and none that another site's page led to: it could read secrets from how long the response is.

    Why that is enough: docs/decisions/0010-pages-are-compressed.md.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        page = not response.streaming and response.get("Content-Type", "").startswith("text/html")
        if page and request.headers.get("Sec-Fetch-Site") != "cross-site":
            return super().process_response(request, response)
        return response


class ContentSecurityPolicyMiddleware:
    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: Request) -> HttpResponse:
        request.csp_nonce = SimpleLazyObject(lambda: secrets.token_urlsafe(16))
        response = self.get_response(request)
        loose = request.path.startswith(("/admin/", "/api/docs/"))
        policy = _ADMIN if loose else _PAGES.format(nonce=request.csp_nonce)
        response.headers.setdefault("Content-Security-Policy", policy)
        return response


class UserPreferencesMiddleware:
    """A signed-in person sees times and words their way, and when their session was last used. Whoever reads a page
    gets a language that the workspace offers."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: Request) -> HttpResponse:
        # A program's bearer token has no pages, so it needs no preferences and no look-up of a session here.
        if bearer(request) is not None or request.path in WATCHED:
            return self.get_response(request)
        user = request.user
        language = _language(request, workspace_of(request), user.language if isinstance(user, User) else "")
        translation.activate(language)
        request.LANGUAGE_CODE = language
        if not isinstance(user, User):
            return self.get_response(request)
        add_log_fields(user_id=user.pk)
        note_visit(request.session, request.headers.get("User-Agent", ""))
        with timezone.override(user.zone):
            return self.get_response(request)


class CharsetMiddleware:
    """Refuses bodies in encodings that are not of texts, before anything decodes them.

    Python decodes a body as its `charset` says. Punycode and IDNA take the square of its length: 0.25 MB took 34 s of a
    processor, in a thread that cannot be ended.
    """

    LINEAR = re.compile(r"utf-8(-sig)?|utf-(16|32)(-[bl]e)?|ascii|iso8859-\d+|cp125\d")  # names of `codecs.lookup`

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: Request) -> HttpResponse:
        # Django takes names that Python does not know for none, and decodes UTF-8 then.
        if request.encoding is None or self.LINEAR.fullmatch(codecs.lookup(request.encoding).name):
            return self.get_response(request)
        error = ProductError("unsupported_charset", "This charset is not read here. Send UTF-8.", status=415)
        return problems.respond(request, error)


class RequiredActionMiddleware:
    """Whoever must choose a password of their own, or set up a second factor, gets no further than to the page for it.

    A program's token goes on: where one is sent along, the session beside it counts for nothing.
    """

    OPEN = (
        "login",
        "login-again",
        "login-second",
        "login-passkey",
        "login-openid",
        "login-openid-done",
        "logout",
        "logo",
        "manifest",
        "service_worker",
        "offline",
    )

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: Request) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: Request, view: object, *given: object) -> HttpResponseBase | None:
        # Without its cookie nobody is signed in by a session: nothing is to be asked then.
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or request.path in WATCHED:
            return None
        match = request.resolver_match
        name = match.view_name if match is not None else ""
        if name in self.OPEN:
            return None
        action = required_action(request, workspace_of(request))
        if action is None or name.startswith(action.page):
            return None
        if problems.is_api(request.path) and bearer(request) is not None:
            request.user = AnonymousUser()
            return None
        if request.method == "GET" and not problems.is_api(request.path) and not request.htmx:
            return redirect(
                reverse(action.page, query={"next": request.get_full_path()} if action.leads_back else None)
            )
        error = ProductError(action.code, action.sentence, status=403)
        return problems.respond(request, error)


def _language(request: HttpRequest, workspace: Workspace, chosen: str) -> str:
    """The person's own, else the first that the browser asks for, else the workspace's; always one that is offered."""
    asked = [code for code, _weight in parse_accept_lang_header(request.headers.get("Accept-Language", ""))]
    for code in [chosen, *asked]:
        with suppress(LookupError):
            found = get_supported_language_variant(code)
            if found in workspace.languages:
                return found
    return workspace.default_language


class ProductErrorMiddleware:
    """Views of pages raise `ProductError`; here it becomes a sentence on the page, or problem+json under `/api/`. So
    does what Django says there without words: that a view does not know a method."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: Request) -> HttpResponse:
        response = self.get_response(request)
        if not (isinstance(response, HttpResponseNotAllowed) and problems.is_api(request.path)):
            return response
        error = ProductError(
            "method_not_allowed", Sentence('Method "{method}" not allowed.', method=str(request.method)), status=405
        )
        told = problems.json_problem(request, error)
        told["Allow"] = response["Allow"]
        return told

    def process_exception(self, request: Request, exception: Exception) -> HttpResponseBase | None:
        exception = problems.foreseen(exception)
        if isinstance(exception, ProductError):
            return problems.respond(request, exception)
        if problems.is_api(request.path) and not settings.DEBUG:
            detail = Sentence(
                "Something went wrong on the server. Try again; if it happens again, tell your admin the request id."
            )
            logger.error("request %s failed", request.request_id, exc_info=exception)
            return problems.json_problem(request, ProductError("internal_error", detail, status=500))
        return None
