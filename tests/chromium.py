"""Debian's Chromium, for tests, benchmarks and screenshots."""

from collections.abc import Iterator
from contextlib import contextmanager
from shutil import which

from playwright.sync_api import Browser, sync_playwright

# Half of what a window costs is not its page. The second line is Playwright's own, which the last such flag replaces.
WITHOUT = """WebUIOmniboxPopup WebUIOmniboxAimPopup WebUIOmniboxFullPopup SpareRendererForSitePerProcess Translate
AvoidUnnecessaryBeforeUnloadCheckSync DestroyProfileOnBrowserClose HttpsUpgrades MediaRouter PaintHolding"""
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    f"--disable-features={','.join(WITHOUT.split())}",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the headless build of Chromium if it is installed: the same engine with three quarters of the CPU time."""
    path = which("chromium-headless-shell") or which("chromium") or which("chromium-browser")
    assert path, "make chromium installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()
