"""How long the search in messages takes in a workspace that `contrib.bench.fill` has filled. Django must be set up.

A person has 500 messages in each: what differs is what everybody else wrote. `contrib.bench.volume` compares two.
"""

import time
from collections.abc import Iterable
from statistics import median

from accounts.models import User
from chat.conversations.search import search, spoken

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
    return found


def searches() -> list[float]:
    """Those of ten of its people."""
    people = list(User.objects.filter(username__startswith="fill-").order_by("username"))
    return measured(people[:: max(1, len(people) // PEOPLE)][:PEOPLE])
