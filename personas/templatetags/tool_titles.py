"""The filter `tool_title`: what people call a tool of the product."""

from django import template

from personas.tools import TOOL_TITLES

register = template.Library()


@register.filter
def tool_title(name: str) -> str:
    """Return the title of a tool; empty for a tool of a server, which has only its name."""
    return str(TOOL_TITLES.get(name, ""))
