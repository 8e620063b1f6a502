"""Measure each list and form of the admin in a small workspace and in one of 2,000 people and a million messages.

    DJANGO_SETTINGS_MODULE=config.settings python -m scripts.services -m contrib.bench.measure_admin [numbers]

The numbers are the arguments of `contrib.bench.fill`. The small workspace has just enough rows to fill a page of each
list, so that only the sizes of the tables differ. A page is marked if it makes another number of queries than in the
small workspace, takes more than 1.5 times as long, or has more than 150 kB.
"""

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import django

django.setup()

from django.conf import settings
from django.contrib import admin
from django.core.management import call_command
from django.db import connection, reset_queries
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings, setup_test_environment
from django.urls import reverse

from accounts.models import User
from chat.ledger.models import ModelCall
from chat.models import Conversation
from contrib.bench import fill
from contrib.bench.volume import LIMIT, NOISE

MAX_BYTES = 150_000
SMALL = (600, 4_000, 8_000)  # people, conversations, messages: they fill two pages of each list, also of shares
SEARCHED = "fill-000002"
RUNS = 7


@dataclass(frozen=True, slots=True)
class AdminPageCost:
    """The cost of a page of the admin. `time`: ms, the shortest of several runs. `size`: compressed bytes."""

    queries: int
    time: float
    size: int
    status: int


def addresses() -> list[str]:
    """Return the start page and, per table, its list, a search, the form for a new row, and the newest row's pages."""
    paths = [reverse("admin:index"), reverse("admin:index") + "?days=90"]
    for model in admin.site._registry:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        listed = reverse(f"{name}_changelist")
        paths += [listed, f"{listed}?p=1", f"{listed}?q={SEARCHED}", reverse(f"{name}_add")]
        newest = model._default_manager.order_by("-pk").values_list("pk", flat=True).first()
        if newest is not None:
            paths += [reverse(f"{name}_{page}", args=[newest]) for page in ("change", "delete", "history")]
    return paths


def measured() -> dict[str, AdminPageCost]:
    """Return the cost of each address, with row ids as “…”. Addresses that this admin does not have are left out."""
    person, _ = User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)
    client, costs = Client(raise_request_exception=False), {}
    client.force_login(person)
    for address in addresses():
        get = partial(client.get, address, headers={"Accept-Encoding": "gzip"})
        cost_of(get)  # fills the caches of the process, such as content types
        answer, count, _ = cost_of(get)
        if answer.status_code in (302, 403, 404):
            continue
        times = [cost_of(get)[2] for _run in range(RUNS)]
        name = re.sub(r"/[0-9a-f-]{36}/", "/…/", address)
        costs[name] = AdminPageCost(count, min(times), len(answer.content), answer.status_code)
    return costs


def cost_of(request: Callable[[], Any]) -> tuple[Any, int, float]:
    """Run a request. Return the answer, the number of queries, and the ms of this process and of the database.

    This process is measured in CPU time, the database in wall time. The caller takes the shortest of several runs, so
    that other work on the machine matters little.
    """
    reset_queries()  # Django keeps at most 9,000
    began = time.process_time()
    with CaptureQueriesContext(connection) as queries:
        answer = request()
    own_seconds = time.process_time() - began
    database_seconds = sum(float(query["time"]) for query in queries.captured_queries)
    return answer, len(queries.captured_queries), (own_seconds + database_seconds) * 1_000


def table(small: dict[str, AdminPageCost], full: dict[str, AdminPageCost]) -> int:
    """Print the table and return the number of pages that exceed a limit."""
    print(f"{'page':<58} {'queries':>11} {'ms':>15} {'times':>6} {'kB':>11}")
    over = 0
    for name in sorted(full):
        now, before = full[name], small.get(name)
        if before is None:
            continue
        ratio = now.time / before.time
        wrong = [
            *(["queries"] if now.queries != before.queries else []),
            *(["time"] if ratio > LIMIT and now.time - before.time > NOISE else []),
            *(["size"] if now.size > MAX_BYTES else []),
            *([str(now.status)] if now.status != 200 else []),
        ]
        over += bool(wrong)
        print(
            f"{name:<58} {before.queries:>5}{now.queries:>6} {before.time:>7.0f}{now.time:>8.0f} {ratio:>6.2f} "
            f"{before.size / 1e3:>5.0f}{now.size / 1e3:>6.0f} {' '.join(wrong)}"
        )
    return over


def main() -> int:
    """Measure in the database of DATABASE_URL, which must be empty."""
    setup_test_environment()
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    with override_settings(STORAGES={**settings.STORAGES, "staticfiles": plain}):
        call_command("migrate", verbosity=0)
        fill.fill(*SMALL)
        owner = User.objects.get(
            username=SEARCHED
        )  # owns nearly all rows of the small workspace, so that their lists fill a page too
        Conversation.objects.update(owner=owner)
        ModelCall.objects.update(person=owner)
        small = measured()
        fill.main(sys.argv[1:])
        return 1 if table(small, measured()) else 0


if __name__ == "__main__":
    sys.exit(main())
