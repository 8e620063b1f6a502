"""Template filters for texts: mentions as links, and names of tools.

`{{ text|mentions }}` converts a plain text to HTML, with its mentions as links.
"""

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from chat.rendering.references import mention_href, split_mentions
from core.sentences import Sentence

register = template.Library()


@register.filter
def mentions(text: str | Sentence) -> SafeString:
    """Return a plain text as HTML with its mentions as links."""
    parts = (
        format_html('<a class="mention" href="{}">{}</a>', mention_href(code), piece) if code else escape(piece)
        for piece, code in split_mentions(str(text))
    )
    return mark_safe("".join(parts))  # noqa: S308 - every part was escaped


@register.filter
def tool_name(name: str) -> str:
    """Return a tool's name in words, with its server: `mail__send_mail` becomes `send mail (mail)`."""
    server, _sign, tool = name.rpartition("__")
    words = tool.replace("_", " ").replace("-", " ").strip() or name
    return f"{words} ({server})" if server else words
