"""Show errors in every interface: problem+json (RFC 9457) for programs, a page or a fragment for people."""

from collections.abc import Mapping, Sequence
from typing import TypedDict, cast

import psycopg
from django.conf import settings
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation, TooManyFieldsSent, TooManyFilesSent
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _
from django_htmx.middleware import HtmxDetails
from drf_standardized_errors.handler import exception_handler
from drf_standardized_errors.types import ExceptionHandlerContext
from redis.exceptions import RedisError
from rest_framework.response import Response

from chat.openai_api.errors import error_response
from core.errors import ProductError
from core.requests import awaits_fragment, with_headers
from core.sentences import Sentence, shortened

MEDIA_TYPE = "application/problem+json"
TITLES = {
    400: _("Bad request"),
    401: _("Not signed in"),
    403: _("Not allowed"),
    404: _("Not found"),
    405: _("Method not allowed"),
    408: _("Too slow"),
    409: _("Conflict"),
    412: _("Changed meanwhile"),
    413: _("Too large"),
    414: _("Address too long"),
    415: _("Unsupported media type"),
    422: _("Cannot be processed"),
    429: _("Too many requests"),
    431: _("Headers too long"),
    500: _("Internal error"),
    502: _("Model provider failed"),
    503: _("Not available"),
}
MAX_ERRORS = 20  # errors of one request that are listed
MAX_ECHO_LENGTH = 800  # characters of one error; the product's longest sentence lists the fields of the workspace
MAX_NAME_LENGTH = 200  # characters of a member's name


class MiddlewareRequest(HttpRequest):
    """A request with the attributes that middleware adds, for type checkers."""

    request_id: str
    began: str
    csp_nonce: object
    htmx: HtmxDetails


class FieldError(TypedDict):
    """An error in a member of a request body. `attr`: the member's name, or None for an error in the whole body."""

    code: str
    detail: str
    attr: str | None


NO_EXTRA: Mapping[str, object] = {}


def problem_members(
    request: HttpRequest,
    status: int,
    code: str,
    detail: Sentence | str,
    *,
    errors: Sequence[FieldError] = (),
    extra: Mapping[str, object] = NO_EXTRA,
) -> Mapping[str, object]:
    """Return the members of problem+json. `extra`: further members of the error."""
    return {
        "type": "about:blank",
        "title": gettext(TITLES.get(status, _("Error"))),
        "status": status,
        "detail": str(detail),
        "code": code,
        "errors": list(errors),
        "request_id": getattr(request, "request_id", ""),
        **extra,
    }


def to_product_error(exception: Exception) -> Exception:
    """Return a `ProductError` for an exception about a request body or an unreachable database or Redis.

    Any other exception is returned unchanged.
    """
    if isinstance(exception, RequestDataTooBig):
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE // 1_048_576
        return ProductError(
            "too_large", Sentence("The request is larger than {limit} MiB. Send less at once.", limit=limit), status=413
        )
    if isinstance(exception, TooManyFieldsSent | TooManyFilesSent):
        detail = Sentence(
            "The form has too many parts. It may have {fields} fields and {files} files. Send fewer at once.",
            fields=settings.DATA_UPLOAD_MAX_NUMBER_FIELDS,
            files=settings.DATA_UPLOAD_MAX_NUMBER_FILES,
        )
        return ProductError("too_many_parts", detail, status=413)
    if isinstance(exception, SuspiciousOperation):
        return ProductError("bad_request", "This is not a valid request. Correct the program that sent it.")
    if isinstance(exception, RecursionError) and "decoding a JSON" in str(exception):
        return ProductError("parse_error", "The JSON is nested too deeply. Send it flatter.")
    if isinstance(exception, RedisError):
        detail = Sentence("The server cannot reach Redis, which it needs for this. Try again in a few seconds.")
        return ProductError("unavailable", detail, status=503, retry_after=5)
    if isinstance(exception, OperationalError) and _is_disconnected(exception.__cause__):
        detail = Sentence("The server is overloaded or cannot reach its database. Try again in a few seconds.")
        return ProductError("unavailable", detail, status=503, retry_after=5)
    return exception


def _is_disconnected(cause: BaseException | None) -> bool:
    """Return whether the pool or libpq raised the error. Errors from the database server have an SQLSTATE."""
    return isinstance(cause, psycopg.OperationalError) and cause.sqlstate is None


def json_problem(request: HttpRequest, error: ProductError) -> JsonResponse:
    if request.path.startswith("/v1/"):
        return error_response(request, error)
    body = problem_members(request, error.status, error.code, error.sentence, extra=error.extra)
    return JsonResponse(body, status=error.status, content_type=MEDIA_TYPE, headers=error.headers)


def page_problem(request: MiddlewareRequest, error: ProductError) -> HttpResponse:
    """Return an error page. For a script, return a fragment that the open page shows in its place for problems."""
    context = {"code": error.code, "detail": error.sentence, "title": gettext(TITLES.get(error.status, _("Error")))}
    if awaits_fragment(request):
        response = render(request, "ui/_problem.html", context, status=error.status)
        response["HX-Retarget"] = "#problem"
        response["HX-Reswap"] = "innerHTML"
        response["HX-Reselect"] = ".problem"  # overrides the element's own `hx-select`
    else:
        page = "404.html" if error.status == 404 else "problem.html"
        response = render(request, page, context, status=error.status)
    return with_headers(response, error)


def respond(request: MiddlewareRequest, error: ProductError) -> HttpResponse:
    """Return problem+json to programs, a page or a fragment to people."""
    return json_problem(request, error) if is_api(request.path) else page_problem(request, error)


def handle(exception: Exception, context: ExceptionHandlerContext) -> Response | None:
    """Return the response to an exception in Django REST framework. None for an unexpected one: Django answers 500."""
    request = cast("HttpRequest", context["request"])
    exception = to_product_error(exception)
    if isinstance(exception, ProductError):
        body = problem_members(request, exception.status, exception.code, exception.sentence, extra=exception.extra)
        return Response(body, status=exception.status, headers=exception.headers, content_type=MEDIA_TYPE)
    response = exception_handler(exception, context)
    if response is None:
        return None
    errors: list[FieldError] = response.data["errors"][:MAX_ERRORS]
    invalid = response.data["type"] == "validation_error"
    code = "invalid" if invalid else errors[0]["code"]
    for error in errors:
        # Django REST framework repeats parts of the request: a choice, an id, the name of a member.
        error["detail"] = shortened(error["detail"], MAX_ECHO_LENGTH)
        error["attr"] = error["attr"] and shortened(error["attr"], MAX_NAME_LENGTH)
    detail = "; ".join(f"{error['attr']}: {error['detail']}" if error["attr"] else error["detail"] for error in errors)
    headers = {name: value for name, value in response.items() if name in ("WWW-Authenticate", "Retry-After", "Allow")}
    body = problem_members(request, response.status_code, code, detail, errors=errors if invalid else ())
    return Response(body, status=response.status_code, headers=headers, content_type=MEDIA_TYPE)


def is_api(path: str) -> bool:
    return path.startswith(("/api/", "/v1/", "/mcp/"))
