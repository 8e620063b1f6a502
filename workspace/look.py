"""Names, icons and colours from the workspace's settings, for `settings.TEMPLATES` and `settings.UNFOLD`."""

from collections.abc import Mapping

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _

from workspace.models.colours import make_scale
from workspace.models.settings import workspace_of


def _steps(colours: str) -> dict[str, str]:
    """Return eleven colours from light to dark, by the step names of Tailwind (50 to 950)."""
    names = ("50", *(str(each) for each in range(100, 1000, 100)), "950")
    return {name: f"#{colour}" for name, colour in zip(names, colours.split(), strict=True)}


# The colours of static/css/tokens.css, in the steps that Unfold needs.
BASE = _steps("f5f5f1 eceee8 deded7 c3cbc6 9ba6a1 626b66 4a524e 3b4340 2a302d 1a1e1c 141716")
PRIMARY = _steps("eef6f3 e4f0ec c2ded5 93cbbb 63c9b5 4fb8a4 0f6b5c 0c584c 0b463d 0a3831 06231f")


def template_context(request: HttpRequest) -> Mapping[str, object]:
    """Return the variable `workspace` for the context of every template."""
    return {"workspace": SimpleLazyObject(lambda: workspace_of(request))}


def colours(request: HttpRequest) -> dict[str, dict[str, str]]:
    chosen = workspace_of(request).accent
    return {"base": dict(BASE), "primary": make_scale(chosen) if chosen else dict(PRIMARY)}


def name(request: HttpRequest) -> str:
    return workspace_of(request).name


def title(request: HttpRequest) -> str:
    return _("%(name)s admin") % {"name": name(request)}


def icon(request: HttpRequest) -> str:
    logo = workspace_of(request).logo_name
    return reverse("logo", args=[logo]) if logo else static("icon.svg")


def stylesheet(request: HttpRequest) -> str:
    return static("css/admin.css")


def script(request: HttpRequest) -> str:
    return static("js/admin.js")
