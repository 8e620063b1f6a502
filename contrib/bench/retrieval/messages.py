"""Measure the search in messages, in a workspace that `contrib.bench.fill` has filled. Django must be set up.

Each person has 500 messages in each workspace. `contrib.bench.volume` compares two workspaces that differ in the number
of other people's messages.
"""

import time
from collections.abc import Iterable
from statistics import median

from accounts.models import User
from chat.conversations.search import count_messages, search

# Words and beginnings of words, found in all messages down to a hundredth of them; phrases, which need the texts; and a
# word without hits. Frequent words have a larger share here than in real queries.
QUERIES = (
    *("everywhere", "e", "third", "thir", "tenth", "hundredth", "hop dong", "hợp đồng", '"hợp đồng"', "京都", "天気"),
    *("term1", "te", "w", "word12", "everywhere third tenth", "every thir ten", "nowhere", "term100 term2"),
    '"everywhere third"',
)
PEOPLE = 10
RUNS = 3


def measured(people: Iterable[User]) -> list[float]:
    """Return the median ms for each person and query."""
    medians = []
    for person in people:
        for query in QUERIES:
            times = []
            for _ in range(RUNS):
                began = time.perf_counter()
                search(user=person, query=query)
                count_messages(user=person, query=query)
                times.append((time.perf_counter() - began) * 1_000)
            medians.append(median(times))
    return medians


def searches() -> list[float]:
    """Return the median ms for each query and each of ten people of the workspace."""
    people = list(User.objects.filter(username__startswith="fill-").order_by("username"))
    return measured(people[:: max(1, len(people) // PEOPLE)][:PEOPLE])
