"""Measure the speed of a page in the browser: the first paint of a conversation, and scrolling in a long one."""

import json
import statistics
import time
from collections import Counter
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page

from contrib.bench.page import SECTION, sign_in
from tests.chromium import chromium
from tests.product import WAIT, Caller, Product, until

LONG, ENDLESS = 200, 10_000  # messages
LARGE = 200_000  # characters in an answer
LOOKS = 9  # visits to each of two pages, in turn; the medians are compared
RATIO = 1.2  # limit: first paint of a long conversation divided by first paint of an empty one
SLOW = {
    "offline": False,
    "latency": 400,
    "downloadThroughput": 50_000,
    "uploadThroughput": 50_000,
}  # ms, bytes a second
USABLE_MS = 2_000.0
FRAME_MS = 50.0
STEPS = 400  # scroll steps of an eighth of the screen
ANSWER = "It is limited by **clause 7**, for the reasons below.\n\n" + SECTION.format(number=7, words="as agreed " * 40)

FIRST_PAINT = """() => new Promise((done) => {
  new PerformanceObserver((list) => {
    const found = list.getEntriesByName("first-contentful-paint")[0];
    if (found) done(found.startTime);
  }).observe({ type: "paint", buffered: true });
})"""
# Scroll up from the newest message. The page loads older messages meanwhile.
SCROLL = """async (steps) => {
  const scroller = document.getElementById("transcript");
  for (let step = 0; step < steps; step += 1) {
    scroller.scrollBy(0, -scroller.clientHeight / 8);
    await new Promise((done) => requestAnimationFrame(done));
  }
}"""
TRACED = ["devtools.timeline", "disabled-by-default-devtools.timeline", "toplevel"]


def _imported(caller: Caller, title: str, texts: list[str]) -> str:
    """Import a conversation with these texts, alternately questions and answers, and return its path."""
    messages = [
        {"uuid": str(number), "sender": "assistant" if number % 2 else "human", "text": text}
        for number, text in enumerate(texts)
    ]
    export = json.dumps([{"uuid": title, "name": title, "chat_messages": messages}]).encode()
    answer = caller.http.post("imports/", files={"file": ("conversations.json", export)})
    job = answer.raise_for_status().json()["id"]
    until(lambda: caller.get(f"imports/{job}/")["status"] == "done", f"“{title}” is imported")
    [row] = [row for row in caller.get("conversations/")["results"] if row["title"] == title]
    return f"/c/{row['id']}/"


def _cookies(context: BrowserContext, product: Product) -> list[Any]:
    return [{"name": each["name"], "value": each["value"], "url": product.url} for each in context.cookies()]


def _paints(context: BrowserContext, url: str, empty: str, long: str) -> list[dict[str, Any]]:
    """Measure the time from the navigation to the first text, in a browser with a warm cache."""
    paints: dict[str, list[float]] = {empty: [], long: []}
    for _ in range(LOOKS):
        for path, times in paints.items():
            page = context.new_page()
            page.goto(url + path)
            times.append(float(page.evaluate(FIRST_PAINT)))
            page.wait_for_selector(".plan-line")
            page.close()
    of_empty, of_long = (statistics.median(paints[path]) for path in (empty, long))
    return [
        {"name": f"warm: first paint of {LONG} messages, beside an empty one's", "value": round(of_long), "unit": "ms",
         "peer": round(of_empty), "ratio": round(of_long / of_empty, 2)},
        {"name": "that ratio", "value": round(of_long / of_empty, 2), "unit": "", "limit": RATIO,
         "ratio": round(of_long / of_empty / RATIO, 2)},
    ]  # fmt: skip


def _requests(context: BrowserContext, url: str, path: str) -> dict[str, Any]:
    """Count the requests for a page that reach the server with a warm cache, without the WebSocket and the worker."""
    page, responses = context.new_page(), []
    session = context.new_cdp_session(page)
    session.on(
        "Network.responseReceived",
        lambda event: responses.append(event) if not event["response"]["fromDiskCache"] else None,
    )
    session.send("Network.enable")
    page.goto(url + path)
    page.wait_for_selector(".plan-line")
    page.wait_for_load_state("networkidle")
    page.close()
    count = len([each for each in responses if each["response"]["url"].startswith(url)])
    return {"name": "warm: requests", "value": count, "unit": "", "limit": 1, "ratio": float(count)}


def _cold(context: BrowserContext, url: str, path: str) -> list[dict[str, Any]]:
    """Measure the first visit, with an empty cache and a slow link."""
    page = context.new_page()
    page.set_default_timeout(WAIT * 1000)
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.emulateNetworkConditions", SLOW)
    began = time.perf_counter()
    page.goto(url + path, wait_until="commit")
    page.wait_for_selector("#text")
    usable = (time.perf_counter() - began) * 1000
    page.focus("#text")
    page.keyboard.type("At once")
    page.keyboard.press("Enter")
    page.wait_for_selector("article.question:has-text('At once')")
    sent = (time.perf_counter() - began) * 1000
    return [
        {"name": "cold, 400 ms and 50 kB/s: one can write", "value": round(usable), "unit": "ms", "limit": USABLE_MS,
         "ratio": round(usable / USABLE_MS, 2)},
        {"name": "cold: what was sent with Enter at once stands there", "value": round(sent), "unit": "ms"},
    ]  # fmt: skip


def _longest_task(browser: Browser, page: Page, steps: int) -> float:
    """Return the milliseconds of the longest task of the page's main thread while it scrolls up.

    No frame is drawn during a task. The thread's CPU time is measured, since other processes use this machine too.
    """
    events: list[dict[str, Any]] = []
    ended: list[Any] = []
    session = browser.new_browser_cdp_session()
    session.on("Tracing.dataCollected", lambda data: events.extend(data["value"]))
    session.on("Tracing.tracingComplete", lambda data: ended.append(data))
    session.send("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": {"includedCategories": TRACED}})
    page.evaluate(SCROLL, steps)
    session.send("Tracing.end")
    while not ended:
        page.wait_for_timeout(50)
    session.detach()
    process = Counter(event["pid"] for event in events if event["name"] == "FireAnimationFrame").most_common(1)[0][0]
    names = (
        (event["pid"], event["tid"], event["args"].get("name")) for event in events if event["name"] == "thread_name"
    )
    [thread] = [tid for pid, tid, name in names if (pid, name) == (process, "CrRendererMain")]
    mine = (event for event in events if (event["pid"], event["tid"]) == (process, thread))
    return max(float(event.get("tdur", 0)) for event in mine if event["name"].endswith("RunTask")) / 1000


def _scrolled(browser: Browser, context: BrowserContext, address: str, what: str) -> dict[str, Any]:
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector(".plan-line")
    longest = _longest_task(browser, page, STEPS)
    page.close()
    return {"name": f"scrolling in {what}: longest task", "value": round(longest, 1), "unit": "ms", "limit": FRAME_MS,
            "ratio": round(longest / FRAME_MS, 2)}  # fmt: skip


def rows(product: Product, caller: Caller, password: str) -> list[dict[str, Any]]:
    """Measure the pages in Chromium, signed in as the admin with `password`."""
    empty = f"/c/{caller.post('conversations/', {'title': 'Empty'}, expect=201)['id']}/"
    long = _imported(caller, "Long", _said(LONG))
    endless = _imported(caller, "Endless", _said(ENDLESS))
    large = _imported(
        caller, "Large", ["Write much.", (SECTION.format(number=7, words="as agreed " * 40) * 400)[:LARGE]]
    )
    with chromium() as browser:
        context = browser.new_context()
        sign_in(context.new_page(), product, password)
        table = [*_paints(context, product.url, empty, long), _requests(context, product.url, long)]
        table.append(_scrolled(browser, context, product.url + large, f"an answer of {LARGE // 1000} kB"))
        table.append(_scrolled(browser, context, product.url + endless, f"{ENDLESS:,} messages"))
        stranger = browser.new_context()
        stranger.add_cookies(_cookies(context, product))
        return table + _cold(stranger, product.url, long)


def _said(count: int) -> list[str]:
    return [
        f"{number}. {ANSWER}" if number % 2 else f"{number}. Which clause limits the fee?" for number in range(count)
    ]
