"""The tag `{% face name id %}`: a letter on a coloured circle, by which people recognise a persona."""

from uuid import UUID

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

COLOURS = 8  # `.face-0` to `.face-7` (static/css/components.css)

register = template.Library()


@register.simple_tag
def face(name: str, pk: UUID) -> SafeString:
    """Return the first letter of the name on a colour that the id decides. Screen readers skip it."""
    letter = next((each for each in name if each.isalnum()), "?").upper()
    return format_html('<span class="face face-{}" aria-hidden="true">{}</span>', pk.int % COLOURS, letter)
