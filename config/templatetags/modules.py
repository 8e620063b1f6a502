"""`{% modules "js/conversation.js" … %}`: the scripts of a page, and at once everything that they import;
`{% after_styles %}…{% endafter_styles %}`: tags that a browser gets to know when it has the stylesheet.

Imports are rewritten to hashed names where files are collected, so no import map is needed; but a browser would find
what is imported only when it has read what imports it, one level after the other.
"""

import json
import posixpath
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from django import template
from django.conf import settings
from django.contrib.staticfiles.finders import find
from django.templatetags.static import static
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

register = template.Library()
IMPORT = re.compile(r"""^(?:import|export)\b[^"'(;]*["'](\.{1,2}/[^"']+)["']""", re.MULTILINE)


@register.simple_tag
def modules(*names: str) -> SafeString:
    """Raises FileNotFoundError where one of them, or one they import, is not among the static files."""
    imported = dict.fromkeys(each for name in names for each in _reached(name) if each not in names)
    preloads = format_html_join("\n", '<link rel="modulepreload" href="{}">', ((static(each),) for each in imported))
    scripts = format_html_join("\n", '<script type="module" src="{}"></script>', ((static(name),) for name in names))
    return SafeString(f"{preloads}\n{scripts}")


@register.simple_block_tag(takes_context=True)
def after_styles(context: template.Context, content: str) -> SafeString:
    """Over a slow link scripts would otherwise share the line with the stylesheet, without which nothing is shown. A
    script within the page waits for the stylesheet, and browsers ask ahead only for what they read as tags. What it
    writes is as if it had stood there: its scripts run when the page is complete, in their order.
    """
    written = SafeString(json.dumps(content).replace("<", "\\u003c"))
    return format_html('<script nonce="{}">document.write({});</script>', context["request"].csp_nonce, written)


def _reached(name: str) -> Iterator[str]:
    """What the module imports, and what that imports, each before what it imports itself; some more than once."""
    for each in _read(name) if settings.DEBUG else _kept(name):
        yield each
        yield from _reached(each)


def _read(name: str) -> tuple[str, ...]:
    path = find(name)
    if path is None:
        raise FileNotFoundError(f"{name} is not among the static files.")
    text = Path(path).read_text()
    return tuple(posixpath.normpath(posixpath.join(posixpath.dirname(name), each)) for each in IMPORT.findall(text))


_kept = lru_cache(maxsize=None)(_read)
