"""Any accent that a person chooses is readable in both looks."""

import re

import pytest

from tests.product import ROOT
from workspace.models import colours

CHOSEN = ["#0f6b5c", "#1d4ed8", "#b91c1c", "#6d28d9", "#000000", "#7a6100", "#ffcc00", "#ffffff", "#00ff00", "#808080"]


@pytest.mark.parametrize("chosen", CHOSEN)
def test_what_is_made_of_a_colour_can_be_read_in_both_looks(chosen: str) -> None:
    light = colours.darken_to_readable(chosen)
    assert colours.least_contrast(light) >= colours.READABLE
    assert (light == chosen) == (colours.least_contrast(chosen) >= colours.READABLE)
    tones = colours.accent(light)
    assert all(colours.contrast(tones.dark, behind) >= colours.CLEAR for behind in (*colours.DARK, tones.dark_tint))
    assert all(colours.contrast(light, behind) >= colours.READABLE for behind in (*colours.LIGHT, tones.light_tint))
    steps = colours.make_scale(light)
    assert colours.contrast(steps["600"], "#ffffff") >= colours.READABLE
    assert list(steps) == ["50", "100", "200", "300", "400", "500", "600", "700", "800", "900", "950"]


def test_the_pages_stand_on_the_colours_that_are_checked_against() -> None:
    tokens = (ROOT / "static/css/tokens.css").read_text()
    pages = re.findall(r"--(?:page|surface|raised|tint): light-dark\((#\w+), (#\w+)\)", tokens)
    assert len(pages) == 4
    for light, dark in pages:
        assert light.replace("#fff", "#ffffff", 1)[:7] in colours.LIGHT or light in colours.LIGHT
        assert dark in colours.DARK


def test_contrast_is_that_of_the_guidelines() -> None:
    assert round(colours.contrast("#000000", "#ffffff"), 1) == 21.0
    assert round(colours.contrast("#777777", "#ffffff"), 2) == 4.48
    assert colours.mix("#ff0000", "#0000ff", 0.5) == "#800080"
