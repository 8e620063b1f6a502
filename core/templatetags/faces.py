"""Tags for faces: `{% face row %}` shows one, `{% face_fields icon colour row %}` lets people choose one."""

from typing import TypedDict

from django import template
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from core.faces import FaceColour, FaceIcon, WithFace

register = template.Library()


class FaceForm(TypedDict):
    """The context of `ui/_face_fields.html`. `icons` and `colours` are pairs of a value and its words."""

    row: WithFace | None
    icons: list[tuple[str, str]]
    colours: list[tuple[str, str]]
    icon: str
    colour: str


@register.simple_tag
def face(row: WithFace) -> SafeString:
    """Return the icon of the row, or the first letter of its name, on its colour. Screen readers skip it."""
    inner: str = row.face_letter
    if row.icon:
        inner = SafeString(render_to_string("ui/_icon.html", {"name": row.icon}).strip())  # `strip` makes it plain
    return format_html('<span class="face face-{}" aria-hidden="true">{}</span>', row.face_colour, inner)


@register.inclusion_tag("ui/_face_fields.html")
def face_fields(icon: str | None, colour: str | None, row: WithFace | None = None) -> FaceForm:
    """Return the fields `icon` and `colour` of a form with these values. `row`: the row whose face is shown above."""
    return {
        "row": row,
        "icons": [(value, str(label)) for value, label in FaceIcon.choices],
        "colours": [(value, str(label)) for value, label in FaceColour.choices],
        "icon": icon or "",
        "colour": colour or "",
    }
