"""How long the search in messages takes beside a million messages of 2,000 people, and beside a thousand of one.

    DJANGO_SETTINGS_MODULE=config.settings python -m scripts.services -m scripts.bench.retrieval.messages

with services of its own; the numbers of `scripts.fill` may be given. Prints JSON. Filling the million takes a quarter
of an hour. A person has 500 messages in both: what differs is what everybody else wrote.
"""

import json
import sys
import time
from collections.abc import Iterable
from statistics import median
from typing import Any

import django

django.setup()

from django.core.management import call_command  # noqa: E402 - models can be imported only after the set-up

from accounts.models import User  # noqa: E402
from chat.conversations.search import search, spoken  # noqa: E402
from scripts import fill  # noqa: E402

LIMIT, TIMES = 150.0, 3.0  # ms; times the small workspace
SMALL = ("--people=2", "--conversations=100", "--messages=1000")
# Words, and the beginnings of some, in all messages and in hundredths of them; phrases, which are read in the text;
# what nobody wrote. By their number here they are more of the frequent than anybody types.
QUERIES = (
    *("everywhere", "e", "third", "thir", "tenth", "hundredth", "hop dong", "hợp đồng", '"hợp đồng"', "京都", "天気"),
    *("term1", "te", "w", "word12", "everywhere third tenth", "every thir ten", "nowhere", "term100 term2"),
    '"everywhere third"',
)
PEOPLE = 10
RUNS = 3


def measured(people: Iterable[User]) -> list[float]:
    """ms of each query of each person, the middle of several runs."""
    found = []
    for person in people:
        for query in QUERIES:
            times = []
            for _ in range(RUNS):
                began = time.perf_counter()
                search(user=person, query=query)
                spoken(user=person, query=query)
                times.append((time.perf_counter() - began) * 1_000)
            found.append(median(times))
    return sorted(found)


def filled(arguments: list[str]) -> list[float]:
    fill.main(arguments)
    people = list(User.objects.filter(username__startswith="fill-").order_by("username"))
    return measured(people[:: max(1, len(people) // PEOPLE)][:PEOPLE])


def p95(times: list[float]) -> float:
    return times[int(len(times) * 0.95)]


def rows(arguments: list[str]) -> list[dict[str, Any]]:
    """In the database of DATABASE_URL, which is empty."""
    call_command("migrate", verbosity=0)
    small, large = filled(list(SMALL)), filled(arguments)
    now, before = p95(large), p95(small)
    named = "search in messages, the whole workspace"
    return [
        {"name": f"{named}, p95", "value": round(now, 1), "unit": "ms", "limit": LIMIT, "ratio": round(now / LIMIT, 2)},
        {
            "name": f"{named}, p95 beside 1,000 messages",
            "value": round(now / before, 2),
            "unit": "times",
            "limit": TIMES,
            "ratio": round(now / before / TIMES, 2),
        },
    ]


if __name__ == "__main__":
    json.dump(rows(sys.argv[1:]), sys.stdout)
