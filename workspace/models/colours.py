"""Check whether the chosen accent is readable on the product's pages, and derive further colours from it.

Colours are written #rrggbb. Contrast is WCAG's ratio, 1 to 21.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

HEX = re.compile(r"#[0-9a-f]{6}")
READABLE = 4.5  # minimum contrast for text in the usual size
CLEAR = 5.5  # minimum contrast for the derived colour on dark pages
# The backgrounds of text, as in static/css/tokens.css.
LIGHT = ("#ffffff", "#fdfdfb", "#f5f5f1", "#eceee8")
DARK = ("#131615", "#1a1e1c", "#212724", "#2b322f")
WHITE = "#ffffff"
BLACK = "#000000"
STEP = 0.04  # share of the way to white or black


class Accent(NamedTuple):
    """The accent for light and for dark pages, and its tints behind selected elements."""

    light: str
    dark: str
    light_tint: str
    dark_tint: str

    @property
    def css(self) -> str:
        """Return the rule that overrides the accent of static/css/tokens.css."""
        accent = f"light-dark({self.light}, {self.dark})"
        tint = f"light-dark({self.light_tint}, {self.dark_tint})"
        return f":root {{ --accent: {accent}; --accent-tint: {tint}; }}"


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def mix(colour: str, into: str, share: float) -> str:
    """Return a mixture with `share` (0 to 1) of `colour` and the rest of `into`."""
    parts = zip(_channels(colour), _channels(into), strict=True)
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in parts)


def least_contrast(colour: str) -> float:
    """Return the lowest contrast of the colour on light pages, as text or behind white text."""
    return _least(colour, (*LIGHT, _light_tint(colour)))


def darken_to_readable(colour: str) -> str:
    """Return the colour if it is readable on light pages, else the nearest darker colour that is."""
    return next(each for each in _towards(colour, BLACK) if least_contrast(each) >= READABLE)


def accent(colour: str) -> Accent:
    """Return the accent of a `darken_to_readable` colour."""
    dark = next(each for each in _towards(colour, WHITE) if _least(each, (*DARK, _dark_tint(each))) >= CLEAR)
    return Accent(colour, dark, _light_tint(colour), _dark_tint(dark))


def make_scale(colour: str) -> dict[str, str]:
    """Return eleven colours from light to dark, by Tailwind's names (50 to 950). 600 is the colour itself."""
    dark = accent(colour).dark
    lighter = {"50": 0.06, "100": 0.12, "200": 0.25}
    darker = {"700": 0.85, "800": 0.7, "900": 0.55, "950": 0.35}
    return {
        **{name: mix(colour, WHITE, share) for name, share in lighter.items()},
        "300": mix(dark, WHITE, 0.7),
        "400": dark,
        "500": dark,
        "600": colour,
        **{name: mix(colour, BLACK, share) for name, share in darker.items()},
    }


def _light_tint(colour: str) -> str:
    return mix(colour, LIGHT[1], 0.1)


def _dark_tint(colour: str) -> str:
    return mix(colour, DARK[0], 0.15)


def _towards(colour: str, end: str) -> list[str]:
    count = round(1 / STEP)
    return [mix(end, colour, number / count) for number in range(count + 1)]


def _least(colour: str, behind: Sequence[str]) -> float:
    return min(contrast(colour, each) for each in behind)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(channel / 255) for channel in _channels(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
