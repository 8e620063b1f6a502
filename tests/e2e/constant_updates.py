"""Updates that arrive all the time: rows are changed through the API while a page looks at them every 50 ms."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event

from playwright.sync_api import Locator, Page

from tests.product import until

EVERY = 0.05  # seconds between two changes, and between two looks of the page
MAX_COUNT = 2_000  # changes, so that a test that hangs ends
WATCH = """([every, most]) => {
  window.looks = 0;
  const timer = setInterval(() => {
    if (window.looksEnded || window.looks >= most) return clearInterval(timer);
    LOOK;
    window.looks += 1;
  }, every);
}"""


@dataclass
class Updates:
    """`changes` is how many were made so far."""

    page: Page
    changes: int = 0
    ended: Event = field(default_factory=Event)

    def make(self, change: Callable[[int], object]) -> None:
        for number in range(MAX_COUNT):
            if self.ended.wait(EVERY):
                return
            change(number)
            self.changes = number + 1

    def pass_(self, count: int = 8) -> None:
        """Waits until so many more changes were made, and until the page has looked as often."""
        looks = int(self.page.evaluate("window.looks"))
        target = self.changes + count
        until(lambda: self.changes >= target, f"{count} changes are made")
        self.page.wait_for_function("wanted => window.looks >= wanted", arg=looks + count)

    def press(self, what: Locator) -> None:
        """A slow click: updates arrive while the button of the mouse is down."""
        what.hover()
        self.page.mouse.down()
        self.pass_()
        self.page.mouse.up()


@contextmanager
def updates(page: Page, look: str, change: Callable[[int], object]) -> Iterator[Updates]:
    """`look`: a statement of JavaScript that has the page ask; `change(n)` makes the n-th change, on its own thread."""
    changes = Updates(page)
    with ThreadPoolExecutor(1) as pool:
        page.evaluate(WATCH.replace("LOOK", look), [EVERY * 1_000, MAX_COUNT])
        work: Future[None] = pool.submit(changes.make, change)
        try:
            yield changes
        finally:
            changes.ended.set()
            page.evaluate("window.looksEnded = true")
        work.result()


def asks(event: str) -> str:
    """Return the script that dispatches an event of the page, as news over the socket do."""
    return f'document.body.dispatchEvent(new CustomEvent("{event}"))'
