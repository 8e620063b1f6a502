"""Steps of a person without a pointer: the focus, and the way to an element by Tab."""

from dataclasses import dataclass

from playwright.sync_api import Page

FARTHEST = 160  # presses of Tab

# What has the focus, None where that is nothing: whether one sees it, and what it is called.
FOCUSED = """() => {
  const each = document.activeElement;
  if (!each || each === document.body) return null;
  const shown = [each, each.closest('.composer'), each.closest('label')].filter(Boolean).some((place) => {
    const style = getComputedStyle(place);
    return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1;
  });
  const label = each.labels?.[0]?.textContent ?? '';
  const name = [each.getAttribute('aria-label'), each.title, label, each.textContent].join(' | ').replace(/\\s+/g, ' ');
  return {what: each.dataset.walked, html: each.outerHTML.slice(0, 200), visible: shown, name};
}"""


@dataclass(frozen=True)
class Keys:
    """Moves by keys alone. The focused element is found by its name, and its focus must be visible."""

    page: Page

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def write(self, text: str) -> None:
        self.page.keyboard.insert_text(text)

    def to(self, name: str, *, back: bool = False) -> None:
        """Move by Tab, or by Shift and Tab, to the element whose accessible name contains `name`."""
        passed = []
        for _ in range(FARTHEST):
            self.page.keyboard.press("Shift+Tab" if back else "Tab")
            place = self.page.evaluate(FOCUSED)
            if place is None:
                continue
            assert place["visible"], f"{place['html']} has the focus and does not show it"
            passed.append(place["name"])
            if name in place["name"]:
                return
        raise AssertionError(f"Tab does not lead to {name}, only to {passed}")

    def open(self, name: str, *, back: bool = False) -> None:
        self.to(name, back=back)
        self.press("Enter")
