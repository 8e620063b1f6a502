"""Health checks for operators, and the responses to unknown addresses and unexpected failures."""

import sys
from typing import Any, cast

import redis
from django.contrib.auth.models import AnonymousUser
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, HttpResponseServerError, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from config.http.problems import MiddlewareRequest, is_api, json_problem, page_problem, to_product_error
from core import background
from core.errors import ProductError
from core.permissions import signed_out_error
from core.requests import awaits_fragment
from core.sentences import Sentence
from workspace.models.settings import workspace_as_last_read


def livez(request: HttpRequest) -> HttpResponse:
    """Answer that the process is alive. Does no I/O, since a slow database must not cause restarts."""
    return HttpResponse("ok", content_type="text/plain")


def readyz(request: HttpRequest) -> JsonResponse:
    """Answer whether this process can serve requests. A 503 names the fault of the database, migrations or Redis.

    The state of workers does not change the status: without a worker, answers wait, and taking every web process out of
    service would not help.
    """
    redis_state, worker_state = _redis_and_workers()
    required = {"database": _database(), "redis": redis_state}
    ready = all(state == "ok" for state in required.values())
    return JsonResponse({"ready": ready, **required, "worker": worker_state}, status=200 if ready else 503)


def missing_migrations() -> int:
    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def _database() -> str:
    try:
        missing = missing_migrations()
    except DatabaseError:
        return "unreachable"
    return f"{missing} migrations are missing; run manage.py migrate" if missing else "ok"


def _redis_and_workers() -> tuple[str, str]:
    try:
        missing = background.missing_queues()
    except redis.RedisError:
        return "unreachable", "unknown"
    if not missing:
        return "ok", "ok"
    return "ok", f"no worker of {' and '.join(missing)} has reported within 20 s; start one, or wait if it is starting"


def not_found(request: HttpRequest, exception: Any) -> HttpResponse:
    if is_api(request.path):
        detail = Sentence("There is nothing at this address. The API is described at /api/docs/.")
        return json_problem(request, ProductError("not_found", detail, status=404))
    return render(request, "404.html", status=404)


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Return a page which says that the form was open too long. A script gets only the sentence."""
    if not awaits_fragment(request):
        return render(request, "403_csrf.html", status=403)
    sentence = Sentence("This page was open too long. Your text is kept here. Reload the page and send it again.")
    error = ProductError("csrf_failed", sentence, status=403) if request.user.is_authenticated else signed_out_error()
    return page_problem(cast("MiddlewareRequest", request), error)


def server_error(request: HttpRequest) -> HttpResponse:
    """Return the response to an exception outside of views.

    An expected exception, such as an unreachable database in a middleware, is explained to the user. The response to
    any other has the request id, by which an operator finds the log lines.
    """
    raised = sys.exc_info()[1]
    error = to_product_error(raised) if isinstance(raised, Exception) else raised
    if not isinstance(error, ProductError):
        number = getattr(request, "request_id", "")
        if not (is_api(request.path) or awaits_fragment(request)):
            return HttpResponseServerError(render_to_string("500.html", {"request_id": number}))
        detail = Sentence(
            "Something went wrong on the server. If it happens again, tell your administrator the number {number}.",
            number=number,
        )
        error = ProductError("internal_error", detail, status=500)
    # The error page must not query the database: it may be the cause, and the query would wait as long again.
    request.user = AnonymousUser()
    request.workspace = workspace_as_last_read()  # type: ignore[attr-defined]  # for templates
    if is_api(request.path):
        return json_problem(request, error)
    return page_problem(cast("MiddlewareRequest", request), error)
