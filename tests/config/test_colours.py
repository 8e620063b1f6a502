"""The computed colours of the context panel: one lightness, and distinct hues, also for colour-blind people."""

import math
import re
from itertools import combinations, pairwise

import pytest

from tests.product import ROOT

Colour = tuple[float, float, float]  # lightness, chroma, hue in degrees
Triple = tuple[float, float, float]

TOKENS = (ROOT / "static/css/tokens.css").read_text()
NUMBERS = r"oklch\(([\d.]+)% ([\d.]+) ([\d.]+)\)"
GROUPS = re.findall(rf"--group-(\w+): light-dark\({NUMBERS}, {NUMBERS}\);", TOKENS)
LOOKS = {"light": 0, "dark": 1}
SURFACES = {"light": "#f5f5f1", "dark": "#1a1e1c"}  # of the panel
APART = 40  # degrees of hue
SEEN_APART = 0.04  # in OKLab: twice what is just noticed
CONTRAST = 3  # WCAG 1.4.11, of what is no text
# What is seen without one kind of cone, in linear light (Machado, Oliveira, Fernandes 2009, severity 1).
EYES = {
    "all three kinds": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def colours(look: str) -> dict[str, Colour]:
    by_name = {}
    for name, *numbers in GROUPS:
        lightness, chroma, hue = map(float, numbers[3 * LOOKS[look] : 3 * LOOKS[look] + 3])
        by_name[name] = (lightness / 100, chroma, hue)
    return by_name


def light(colour: Colour) -> Triple:
    """Linear red, green, blue of an OKLCH colour."""
    lightness, chroma, hue = colour
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )


def lab(rgb: Triple) -> Triple:
    red, green, blue = (min(1.0, max(0.0, each)) for each in rgb)
    long = math.cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue)
    middle = math.cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue)
    short = math.cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def seen(colour: Colour, eye: str) -> Triple:
    rgb = light(colour)
    red, green, blue = (sum(part * each for part, each in zip(row, rgb, strict=True)) for row in EYES[eye])
    return lab((red, green, blue))


def luminance(rgb: Triple) -> float:
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def linear(hexadecimal: str) -> Triple:
    red, green, blue = (int(hexadecimal[start : start + 2], 16) / 255 for start in (1, 3, 5))
    as_light = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in (red, green, blue)]
    return (as_light[0], as_light[1], as_light[2])


@pytest.mark.parametrize("look", LOOKS)
def test_groups_have_one_lightness_and_hues_that_are_apart(look: str) -> None:
    groups = colours(look)
    assert len(groups) == 7
    assert len({lightness for lightness, _, _ in groups.values()}) == 1
    hues = sorted(hue for _, _, hue in groups.values())
    assert min(after - before for before, after in pairwise([*hues, hues[0] + 360])) >= APART
    assert all(-0.001 <= part <= 1.001 for each in groups.values() for part in light(each)), "a screen can show them"


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("look", LOOKS)
def test_no_two_groups_look_alike(look: str, eye: str) -> None:
    places = {name: seen(colour, eye) for name, colour in colours(look).items()}
    alike = {
        (one, other): round(distance, 3)
        for one, other in combinations(places, 2)
        if (distance := math.dist(places[one], places[other])) < SEEN_APART
    }
    assert alike == {}


@pytest.mark.parametrize("look", LOOKS)
def test_groups_stand_out_from_the_panel(look: str) -> None:
    behind = luminance(linear(SURFACES[look]))
    assert f"{SURFACES[look]}" in TOKENS
    for name, colour in colours(look).items():
        light_of, dark_of = sorted((luminance(light(colour)), behind), reverse=True)
        assert (light_of + 0.05) / (dark_of + 0.05) >= CONTRAST, name
