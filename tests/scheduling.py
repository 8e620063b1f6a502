"""Which test process runs which tests.

Kinds of tests, by their markers:
- none: runs in the test's own process. The quickest kind, and the most common one.
- `process`: starts servers or commands of its own. Two such tests never run at the same time.
- `product`, `browser`: talks to the running product. A run has one product and one browser.
- `slow`: runs in one process, but takes too long for `make test`.
- `smoke`: also runs in `make test`, whatever its other markers are.

1. `pytest_collection_modifyitems` gives each test its group and each test with processes a second try.
2. Under xdist, `Scheduling` gives all tests of a group to one worker.
3. The worker with the running product takes no other tests after them, because the product changes rows by itself.

A test that passed at its second try is listed with its trace at the end of the run. The fourth failure of a run is not
tried again (`--max-suite-reruns` in pyproject.toml).
"""

from typing import Any

import pytest
from xdist.scheduler.loadgroup import LoadGroupScheduling
from xdist.workermanage import WorkerController

PRODUCT, PROCESS = "product", "process"  # groups of xdist


def group_of(item: pytest.Item) -> str | None:
    """Return the group whose tests run in one test process, or None for a test that may run in any."""
    if item.get_closest_marker("browser") or item.get_closest_marker("product"):
        return PRODUCT
    if "product" in getattr(item, "fixturenames", ()):
        return PRODUCT
    return PROCESS if item.get_closest_marker("process") else None


def _place(item: pytest.Item) -> int:
    """Return when a test runs in its process. Browser tests are last because Playwright leaves an event loop behind."""
    if item.get_closest_marker("browser"):
        return 3
    return {None: 0, PROCESS: 1, PRODUCT: 2}[group_of(item)]


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups afterwards
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=_place)
    for item in items:
        group = group_of(item)
        if group is None:
            continue
        item.add_marker(pytest.mark.xdist_group(group))
        if not config.getoption("usepdb"):
            item.add_marker(pytest.mark.flaky(reruns=1))


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
