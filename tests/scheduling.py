"""Distribution of the tests over the test processes.

Kinds of tests, by their markers:
- none: runs in the test's own process. The quickest kind, and the most common one.
- `process`: starts servers or commands of its own. Two such tests never run at the same time.
- `product`, `browser`: talks to the running product. A run has one product and one browser.
- `slow`: runs in one process, but takes too long for `make test`.
- `smoke`: also runs in `make test`, whatever its other markers are.

1. `pytest_collection_modifyitems` gives each test its group and its place, and each test with processes a second try.
2. Under xdist, `Scheduling` gives all tests of a group to one worker, and the others in their order.
3. The worker with the running product takes no other tests after them, because the product changes rows by itself.
4. The other workers give way to it: the run lasts as long as that worker does.

A test that passed at its second try is listed with its trace at the end of the run. The fourth failure of a run is not
tried again (`--max-suite-reruns` in pyproject.toml).
"""

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from _pytest.nodeid import NodeId
from xdist.scheduler.loadgroup import LoadGroupScheduling
from xdist.workermanage import WorkerController

PRODUCT, PROCESS = "product", "process"  # groups of xdist
NICENESS = 5  # of the workers without the running product


def group_of(item: pytest.Item) -> str | None:
    """Return the group whose tests run in one test process, or None for a test that may run in any process."""
    if item.get_closest_marker("browser") or item.get_closest_marker("product"):
        return PRODUCT
    if "product" in getattr(item, "fixturenames", ()):
        return PRODUCT
    return PROCESS if item.get_closest_marker("process") else None


def _needs_workspace(item: pytest.Item) -> bool:
    """Return whether a test needs the committed rows of the fixture `workspace`. `server` asks for it as it runs."""
    return not {"workspace", "server"}.isdisjoint(getattr(item, "fixturenames", ()))


def _place(item: pytest.Item, *, alone: bool) -> int:
    """Return when a test runs.

    Tests without the rows of `workspace` come first: some want an empty database. With several workers the tests of the
    running product come before them, because one worker needs most of the run for them. In one process these come last:
    worker and beat change rows by themselves, and Playwright leaves an event loop behind.
    """
    group = group_of(item)
    if group == PRODUCT:
        first = 3 if alone else -2
        return first + (item.get_closest_marker("browser") is not None)
    if group == PROCESS:
        return 1
    return 2 if _needs_workspace(item) else 0


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Name the groups, and sort after pytest-django has sorted."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    for item in items:
        group = group_of(item)
        if group is None:
            continue
        item.add_marker(group)  # for -m, where only the fixture `product` says so
        if workers > 1:
            # The scheduler reads the group behind the last "@". xdist 3.8 writes it where pytest 9.2 no longer looks.
            item._id = NodeId.parse(f"{item.nodeid}@{group}")
        if not config.getoption("usepdb"):
            item.add_marker(pytest.mark.flaky(reruns=1))
    yield
    items.sort(key=partial(_place, alone=workers == 1))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if hasattr(item.config, "workerinput") and group_of(item) != PRODUCT and not os.getpriority(os.PRIO_PROCESS, 0):
        os.nice(NICENESS)


class Scheduling(LoadGroupScheduling):
    """Send nothing else to the worker that has the tests of the running product, while others can take it."""

    def _reschedule(self, node: WorkerController) -> None:
        others = any(other is not node and not other.shutting_down for other in self.nodes)
        if PRODUCT in self.assigned_work[node] and others:
            node.shutdown()  # it ends after the tests that it has already
        else:
            super()._reschedule(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadGroupScheduling | None:
    return Scheduling(config, log) if config.getoption("dist") == "loadgroup" else None
