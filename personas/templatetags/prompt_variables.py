"""The variables that instructions may have, beside the fields that take them."""

from collections.abc import ItemsView

from django import template
from django.utils.functional import Promise

from personas.variables import VARIABLES

register = template.Library()


@register.simple_tag
def prompt_variables() -> ItemsView[str, str | Promise]:
    """Return each variable with its meaning."""
    return VARIABLES.items()
