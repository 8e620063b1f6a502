"""Middleware for request ids, the content security policy, the user's language and time zone, and errors."""

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
from config.http.problems import MiddlewareRequest
from core.audit.origin import How, Origin, use_origin
from core.errors import ProductError
from core.logs import tracing
from core.logs.context import add_log_fields
from core.logs.metrics import REQUESTS
from core.sentences import Sentence
from workspace.models import Workspace
from workspace.models.settings import workspace_of

logger = logging.getLogger(__name__)
MONITORING_PATHS = (
    "/livez",
    "/readyz",
    "/metrics",
)  # monitoring requests these often, without need for a language or an origin
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
GetResponse = Callable[[HttpRequest], HttpResponse]


# Pages load no inline code without the request's nonce, and no code from other sites. The admin, which is for staff
# only, has a looser policy: its scripts (Alpine.js) evaluate expressions and set styles.
_PAGES = (
    "default-src 'self'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data: "
    "blob:; media-src 'self' blob:; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_ADMIN = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class RequestIdMiddleware:
    """Gives a request its id: the caller's `X-Request-ID` if that has only letters, digits and hyphens, else a new id.

    Every response has the id, too. `began` is the Unix time of the request. Pages contain it, so that their socket can
    request later changes.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: MiddlewareRequest) -> HttpResponse:
        caller_id = request.headers.get("X-Request-ID", "")
        plain = caller_id.replace("-", "").isalnum() and caller_id.isascii() and len(caller_id) <= 64
        request.request_id = caller_id if plain else uuid.uuid4().hex
        request.began = f"{time.time():.3f}"
        add_log_fields(request_id=request.request_id)
        method = request.method if request.method in METHODS else ""
        began = time.monotonic()
        with _begin_span(request, method) as span:
            response = self.get_response(request)
            view = request.resolver_match.view_name if request.resolver_match else ""
            span.update_name(f"{method} {view}")
            span.set_attribute("http.response.status_code", response.status_code)
            if response.status_code >= 500:
                tracing.fail(span, str(response.status_code))
        REQUESTS.labels(view, method, f"{response.status_code // 100}xx").observe(time.monotonic() - began)
        response["X-Request-ID"] = request.request_id
        return response


def _begin_span(request: MiddlewareRequest, method: str) -> AbstractContextManager[Span]:
    if request.path in MONITORING_PATHS or request.path.startswith(settings.STATIC_URL):
        return nullcontext(INVALID_SPAN)
    return tracing.of_request(method, request.request_id, request.headers.get("traceparent", ""))


class OriginMiddleware:
    """Sets the origin of a request's actions for the audit log: the interface, the address and the request id."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: MiddlewareRequest) -> HttpResponse:
        how = How.ADMIN if request.path.startswith("/admin/") else How.API if is_program(request) else How.PAGE
        with use_origin(Origin(how, address_of(request), request.request_id, recorded=set())):
            return self.get_response(request)


def is_program(request: HttpRequest) -> bool:
    return problems.is_api(request.path) or bearer(request) is not None


class PageCompressionMiddleware(GZipMiddleware):
    """Compresses pages, except those requested from another site, which could infer secrets from the length.

    docs/decisions/0010-pages-are-compressed.md says why this is enough.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        page = not response.streaming and response.get("Content-Type", "").startswith("text/html")
        if page and request.headers.get("Sec-Fetch-Site") != "cross-site":
            return super().process_response(request, response)
        return response


class ContentSecurityPolicyMiddleware:
    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: MiddlewareRequest) -> HttpResponse:
        request.csp_nonce = SimpleLazyObject(lambda: secrets.token_urlsafe(16))
        response = self.get_response(request)
        is_loose = request.path.startswith(("/admin/", "/api/docs/"))
        policy = _ADMIN if is_loose else _PAGES.format(nonce=request.csp_nonce)
        response.headers.setdefault("Content-Security-Policy", policy)
        return response


class UserPreferencesMiddleware:
    """Activates the user's language and time zone, and records the visit in their session.

    The language is always one that the workspace offers, also for a visitor who is not signed in.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: MiddlewareRequest) -> HttpResponse:
        # A program with a bearer token gets no pages, so it needs no preferences and no session query.
        if bearer(request) is not None or request.path in MONITORING_PATHS:
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
    """Refuses bodies in encodings whose decoding takes more than linear time, before any code decodes them.

    Python decodes a body by its `charset`. Punycode and IDNA take time in the square of its length: 0.25 MB took 34 s
    of processor time, in a thread that cannot be stopped.
    """

    LINEAR = re.compile(r"utf-8(-sig)?|utf-(16|32)(-[bl]e)?|ascii|iso8859-\d+|cp125\d")  # names of `codecs.lookup`

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: MiddlewareRequest) -> HttpResponse:
        # If Python does not know the encoding, Django ignores it and decodes UTF-8.
        if request.encoding is None or self.LINEAR.fullmatch(codecs.lookup(request.encoding).name):
            return self.get_response(request)
        error = ProductError("unsupported_charset", "This character encoding is not supported. Send UTF-8.", status=415)
        return problems.respond(request, error)


class RequiredActionMiddleware:
    """Redirects a user who must choose a password or set up a second factor to the page for it.

    API requests with a token pass, as if they had no session.
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

    def __call__(self, request: MiddlewareRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: MiddlewareRequest, view: object, *arguments: object) -> HttpResponseBase | None:
        # Without the cookie nobody is signed in by a session, so no query is needed.
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or request.path in MONITORING_PATHS:
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
            query = {"next": request.get_full_path()} if action.leads_back else None
            return redirect(reverse(action.page, query=query))
        error = ProductError(action.code, action.sentence, status=403)
        return problems.respond(request, error)


def _language(request: HttpRequest, workspace: Workspace, chosen: str) -> str:
    """Return the person's or else the browser's first language that the workspace offers, else its default language."""
    accepted = [code for code, _weight in parse_accept_lang_header(request.headers.get("Accept-Language", ""))]
    for code in [chosen, *accepted]:
        with suppress(LookupError):
            variant = get_supported_language_variant(code)
            if variant in workspace.languages:
                return variant
    return workspace.default_language


class ProductErrorMiddleware:
    """Turns a `ProductError` of a view into a message on the page, or into problem+json under `/api/`.

    Under `/api/` it also converts Django's 405, which has no message.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: MiddlewareRequest) -> HttpResponse:
        response = self.get_response(request)
        if not (isinstance(response, HttpResponseNotAllowed) and problems.is_api(request.path)):
            return response
        error = ProductError(
            "method_not_allowed", Sentence('Method "{method}" not allowed.', method=str(request.method)), status=405
        )
        refusal = problems.json_problem(request, error)
        refusal["Allow"] = response["Allow"]
        return refusal

    def process_exception(self, request: MiddlewareRequest, exception: Exception) -> HttpResponseBase | None:
        exception = problems.to_product_error(exception)
        if isinstance(exception, ProductError):
            return problems.respond(request, exception)
        if problems.is_api(request.path) and not settings.DEBUG:
            detail = Sentence(
                "Something went wrong on the server. Try again; if it happens again, tell your admin the request id."
            )
            logger.error("request %s failed", request.request_id, exc_info=exception)
            return problems.json_problem(request, ProductError("internal_error", detail, status=500))
        return None
