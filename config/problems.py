"""Errors as every interface shows them: problem+json (RFC 9457) for programs, a page or a fragment for people."""

from typing import Any, cast

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from drf_standardized_errors.handler import exception_handler
from drf_standardized_errors.types import ExceptionHandlerContext
from rest_framework.response import Response

from chat.protocol.errors import refusal
from llm.errors import ProductError

MEDIA_TYPE = "application/problem+json"
TITLES = {
    400: "Bad request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    412: "Changed meanwhile",
    413: "Too large",
    415: "Unsupported media type",
    422: "Cannot be processed",
    429: "Too many requests",
    500: "Internal error",
    502: "Model provider failed",
    503: "Not available",
}


def problem(
    request: HttpRequest, status: int, code: str, detail: str, errors: list[dict[str, Any]] | None = None, **extra: Any
) -> dict[str, Any]:
    return {
        "type": "about:blank",
        "title": TITLES.get(status, "Error"),
        "status": status,
        "detail": detail,
        "code": code,
        "errors": errors or [],
        "request_id": getattr(request, "request_id", ""),
        **extra,
    }


def json_problem(request: HttpRequest, error: ProductError) -> JsonResponse:
    if request.path.startswith("/v1/"):
        return refusal(error)
    body = problem(request, error.status, error.code, error.detail, **error.extra)
    return JsonResponse(body, status=error.status, content_type=MEDIA_TYPE, headers=_when(error))


def _when(error: ProductError) -> dict[str, str]:
    """An error that passes says so in `retry_after`, in seconds, for programs in the header too."""
    return {"Retry-After": str(error.extra["retry_after"])} if "retry_after" in error.extra else {}


def page_problem(request: HttpRequest, error: ProductError) -> HttpResponse:
    """For htmx a fragment that goes where problems are shown; the draft on the page is not touched."""
    context = {"code": error.code, "detail": error.detail, "title": TITLES.get(error.status, "Error")}
    if request.headers.get("HX-Request"):
        response = render(request, "chat/_problem.html", context, status=error.status)
        response["HX-Retarget"], response["HX-Reswap"] = "#problem", "innerHTML"
        return response
    if error.status == 404:
        return render(request, "404.html", context, status=404)
    return render(request, "problem.html", context, status=error.status)


def handle(exception: Exception, context: dict[str, Any]) -> Response | None:
    """Django REST framework's exception handler. None (a 500 by Django) for what nobody foresaw."""
    request = context["request"]
    if isinstance(exception, ProductError):
        body = problem(request, exception.status, exception.code, exception.detail, **exception.extra)
        return Response(body, status=exception.status, headers=_when(exception), content_type=MEDIA_TYPE)
    response = exception_handler(exception, cast("ExceptionHandlerContext", context))
    if response is None:
        return None
    errors = response.data["errors"]
    invalid = response.data["type"] == "validation_error"
    code = "invalid" if invalid else errors[0]["code"]
    detail = "; ".join(f"{error['attr']}: {error['detail']}" if error["attr"] else error["detail"] for error in errors)
    headers = {name: value for name, value in response.items() if name in ("WWW-Authenticate", "Retry-After", "Allow")}
    body = problem(request, response.status_code, code, detail, errors if invalid else None)
    return Response(body, status=response.status_code, headers=headers, content_type=MEDIA_TYPE)


def is_api(path: str) -> bool:
    return path.startswith(("/api/", "/v1/"))
