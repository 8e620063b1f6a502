"""Template tag for the list of variables that instructions may contain."""

from collections.abc import ItemsView

from django import template
from django.utils.functional import Promise

from personas.variables import VARIABLES

register = template.Library()


@register.simple_tag
def prompt_variables() -> ItemsView[str, str | Promise]:
    """Return each variable with its meaning."""
    return VARIABLES.items()
