"""Violations that axe finds on a page."""

from collections.abc import Mapping, Sequence

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

WCAG = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
AXE = Axe().axe_script
# Of all it finds only what is wrong leaves the page: the rest is megabytes.
VIOLATIONS = """async ([place, options]) => (await axe.run(place ?? document, options)).violations.flatMap(
  ({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html.slice(0, 200)}`))"""


def violations(
    page: Page, place: str | Mapping[str, Sequence[str]] | None = None, rules: Sequence[str] = WCAG
) -> list[str]:
    """Return axe's violations. `place`: a selector of the part to check, or {"exclude": selectors} of foreign parts."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    options = {"runOnly": [*rules], "resultTypes": ["violations"]}
    sentences: list[str] = page.evaluate(VIOLATIONS, [place, options])
    return sentences
