"""Measure frame times of the page while a long answer streams. The longest frame is the one that people notice."""

import json
from typing import Any

from playwright.sync_api import Page

from tests.chromium import chromium
from tests.product import WAIT, Caller, Product

SIZE = 50_000  # characters
LIMIT_MS = 100.0
FRAMES = """() => {
  window.frames_ = []; window.long_ = [];
  new PerformanceObserver((list) => long_.push(...list.getEntries().map((each) => each.duration)))
    .observe({ type: "longtask" });
  let before = performance.now();
  const next = (now) => { frames_.push(now - before); before = now; requestAnimationFrame(next); };
  requestAnimationFrame(next);
}"""
SECTION = """## Section {number}

Words of some length about **clause {number}**, its reasons and `what_follows`, as a model writes them: {words}

| clause | rule |
|---|--:|
| {number} | {number}00 euros |

```python
def clause_{number}(fee: float) -> float:
    return min(fee, {number}00.0)
```

"""


def long_text() -> str:
    """Return Markdown of every kind, then one long paragraph and one long block of code."""
    words, text, number = "the fee is limited and what exceeds it is free of charge " * 6, "", 0
    while len(text) < SIZE - 12_000:
        number += 1
        text += SECTION.format(number=number, words=words)
    code = "".join(f"value_{line} = compute({line}) + value_{line - 1}\n" for line in range(1, 130))
    return f"{text}{words * 17}\n\n```python\n{code}```\n"


def sign_in(page: Page, product: Product, password: str) -> None:
    """Sign in as the admin, and go to a new conversation."""
    page.goto(product.url + "/")
    page.fill("[name=username]", "admin")
    page.fill("[name=password]", password)
    page.click("button[type=submit]")
    page.wait_for_url(lambda address: "/login" not in address)
    page.goto(product.url + "/")  # the first administrator was redirected to the setup
    page.wait_for_selector(".plan-line")


def rows(product: Product, caller: Caller, password: str) -> list[dict[str, Any]]:
    """Measure the page in Chromium, signed in as the admin with `password`."""
    text = long_text()
    conversation_id = str(caller.post("conversations/", {"title": "Bench"}, expect=201)["id"])
    with chromium() as browser:
        page = browser.new_page()
        page.set_default_timeout(WAIT * 1000)
        sign_in(page, product, password)
        page.goto(f"{product.url}/c/{conversation_id}/")
        page.wait_for_selector(".plan-line")
        script = {"steps": [{"text": text, "interval": 0.004}]}
        page.fill("#text", f"Go\nscript: {json.dumps(script)}")
        page.click("#send")
        page.wait_for_selector("article.answer .block")
        page.evaluate(FRAMES)  # starts after the question, since that contains the whole script
        page.wait_for_selector("article.answer[data-status=done]", timeout=5 * WAIT * 1000)
        frames, long = page.evaluate("[frames_.slice(), long_.slice()]")
    worst = max(frames)
    name = f"an answer of {len(text) // 1000} kB on the page"
    return [
        {"name": f"{name}: longest frame", "value": round(worst, 1), "unit": "ms", "limit": LIMIT_MS,
         "ratio": round(worst / LIMIT_MS, 2)},
        {"name": f"{name}: frame, p99", "value": round(sorted(frames)[int(0.99 * len(frames))], 1), "unit": "ms"},
        {"name": f"{name}: tasks above 50 ms", "value": len(long), "unit": "tasks"},
    ]  # fmt: skip
