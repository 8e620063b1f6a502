"""Every list and form of the admin in a small workspace and in one of 2,000 people and a million messages.

`DJANGO_SETTINGS_MODULE=config.settings python -m scripts.services -m contrib.bench.measure_admin` does it with services
of its own; the numbers of `contrib.bench.fill` may be given. The small one has just so many rows that a list fills its
page: what differs is then the tables' size alone. What is over a limit is marked: other queries than in the small one,
more than 1.5 times its time, more than 150 kB.
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

from django.conf import settings  # noqa: E402 - models can be imported only after the set-up
from django.contrib import admin  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection, reset_queries  # noqa: E402
from django.test import Client  # noqa: E402
from django.test.utils import CaptureQueriesContext, override_settings, setup_test_environment  # noqa: E402
from django.urls import reverse  # noqa: E402

from accounts.models import User  # noqa: E402
from chat.ledger.models import ModelCall  # noqa: E402
from chat.models import Conversation  # noqa: E402
from contrib.bench import fill  # noqa: E402
from contrib.bench.volume import LIMIT, NOISE  # noqa: E402

MOST_BYTES = 150_000
SMALL = (600, 4_000, 8_000)  # people, conversations, messages: as many as fill a list's first two pages, of shares too
SEARCHED = "fill-000002"
RUNS = 7


@dataclass(frozen=True, slots=True)
class Measured:
    """`time` in ms, the shortest of several; `size` in bytes as a browser gets them, compressed."""

    queries: int
    time: float
    size: int
    status: int


def addresses() -> list[str]:
    """The start page, and of each table its list, a search, the form for a new row, and the pages of the newest one."""
    found = [reverse("admin:index"), reverse("admin:index") + "?days=90"]
    for model in admin.site._registry:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        listed = reverse(f"{name}_changelist")
        found += [listed, f"{listed}?p=1", f"{listed}?q={SEARCHED}", reverse(f"{name}_add")]
        newest = model._default_manager.order_by("-pk").values_list("pk", flat=True).first()
        if newest is not None:
            found += [reverse(f"{name}_{page}", args=[newest]) for page in ("change", "delete", "history")]
    return found


def measured() -> dict[str, Measured]:
    """By address, with the keys of rows left out; those that this admin does not have are not among them."""
    person, _ = User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)
    client, found = Client(raise_request_exception=False), {}
    client.force_login(person)
    for address in addresses():
        get = partial(client.get, address, headers={"Accept-Encoding": "gzip"})
        asked(get)  # what a process keeps from then on, such as kinds of rows, is asked once
        answer, count, _ = asked(get)
        if answer.status_code in (302, 403, 404):
            continue
        times = [asked(get)[2] for _run in range(RUNS)]
        name = re.sub(r"/[0-9a-f-]{36}/", "/…/", address)
        found[name] = Measured(count, min(times), len(answer.content), answer.status_code)
    return found


def asked(request: Callable[[], Any]) -> tuple[Any, int, float]:
    """The answer to it, how many queries it took, and for how many ms this process and the database were at work.

    What else the machine does counts little so: our part is CPU time, and of the database's the shortest run is taken.
    """
    reset_queries()  # of which Django keeps no more than 9,000
    began = time.process_time()
    with CaptureQueriesContext(connection) as queries:
        answer = request()
    ours = time.process_time() - began
    theirs = sum(float(query["time"]) for query in queries.captured_queries)
    return answer, len(queries.captured_queries), (ours + theirs) * 1_000


def table(small: dict[str, Measured], full: dict[str, Measured]) -> int:
    """Prints it, and says how many pages are over a limit."""
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
            *(["size"] if now.size > MOST_BYTES else []),
            *([str(now.status)] if now.status != 200 else []),
        ]
        over += bool(wrong)
        print(
            f"{name:<58} {before.queries:>5}{now.queries:>6} {before.time:>7.0f}{now.time:>8.0f} {ratio:>6.2f} "
            f"{before.size / 1e3:>5.0f}{now.size / 1e3:>6.0f} {' '.join(wrong)}"
        )
    return over


def main() -> int:
    """In the database of DATABASE_URL, which is empty."""
    setup_test_environment()
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    with override_settings(STORAGES={**settings.STORAGES, "staticfiles": plain}):
        call_command("migrate", verbosity=0)
        fill.fill(*SMALL)
        one = User.objects.get(username=SEARCHED)  # in the small one nearly all is theirs, so that it fills a page, too
        Conversation.objects.update(owner=one)
        ModelCall.objects.update(person=one)
        small = measured()
        fill.main(sys.argv[1:])
        return 1 if table(small, measured()) else 0


if __name__ == "__main__":
    sys.exit(main())
