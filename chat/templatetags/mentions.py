"""`{{ text|mentions }}`: a plain text as HTML, with what it mentions as links; an answer without its marks of Markdown;
and tools as people call them."""

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from chat.conversations.search import without_marks
from chat.rendering.references import mention_href, split_mentions
from core.sentences import Sentence

register = template.Library()
register.filter("without_marks", without_marks)


@register.filter
def mentions(text: str | Sentence) -> SafeString:
    parts = (
        format_html('<a class="mention" href="{}">{}</a>', mention_href(code), piece) if code else escape(piece)
        for piece, code in split_mentions(str(text))
    )
    return mark_safe("".join(parts))  # noqa: S308 - every part was escaped


@register.filter
def tool_name(name: str) -> str:
    """`mail__send_mail` as `send mail (mail)`: what it does, and the server that does it."""
    server, _sign, tool = name.rpartition("__")
    words = tool.replace("_", " ").replace("-", " ").strip() or name
    return f"{words} ({server})" if server else words
