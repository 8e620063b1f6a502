"""`{{ text|mentions }}`: a plain text as HTML, with what it mentions as links."""

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from chat.rendering.references import mention_href, pieces

register = template.Library()


@register.filter
def mentions(text: str) -> SafeString:
    parts = (
        format_html('<a class="mention" href="{}">{}</a>', mention_href(code), piece) if code else escape(piece)
        for piece, code in pieces(text)
    )
    return mark_safe("".join(parts))  # noqa: S308 - every part was escaped
