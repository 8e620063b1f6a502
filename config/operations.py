"""For whoever runs the product: is it alive, is it ready; and the last resort for unknown addresses."""

from typing import Any

import redis
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from chat import streams
from config.problems import is_api, json_problem
from llm.errors import ProductError


def livez(request: HttpRequest) -> HttpResponse:
    """The process answers. No I/O, so a slow database does not get the process restarted."""
    return HttpResponse("ok", content_type="text/plain")


def readyz(request: HttpRequest) -> JsonResponse:
    """503 with what is missing, until requests can be served: database, migrations, Redis, a worker."""
    checks = {"database": _database(), **_redis_and_worker()}
    ready = all(state == "ok" for state in checks.values())
    return JsonResponse({"ready": ready, **checks}, status=200 if ready else 503)


def _database() -> str:
    try:
        executor = MigrationExecutor(connection)
        pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return "unreachable"
    return f"{len(pending)} migrations are missing; run manage.py migrate" if pending else "ok"


def _redis_and_worker() -> dict[str, str]:
    try:
        alive = streams.worker_is_alive()
    except redis.RedisError:
        return {"redis": "unreachable", "worker": "unknown"}
    return {"redis": "ok", "worker": "ok" if alive else "none has been heard of for 20 s; start one"}


def not_found(request: HttpRequest, exception: Any) -> HttpResponse:
    if is_api(request.path):
        detail = "There is nothing at this address. The API is described at /api/docs/."
        return json_problem(request, ProductError("not_found", detail, status=404))
    return render(request, "404.html", status=404)
