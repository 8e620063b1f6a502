"""Tags for scripts.

`{% modules "js/conversation.js" … %}` writes the scripts of a page with preloads of all their imports. Imports are
rewritten to hashed names when static files are collected, so no import map is needed. Without the preloads a browser
would find imports only level by level, after it has read the importing script.

`{% after_styles %}…{% endafter_styles %}` delays tags until the browser has the stylesheet.
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
    """Return the tags of the scripts and of the preloads. Raises FileNotFoundError if a file is missing."""
    imported = dict.fromkeys(each for name in names for each in _imports(name) if each not in names)
    preloads = format_html_join("\n", '<link rel="modulepreload" href="{}">', ((static(each),) for each in imported))
    scripts = format_html_join("\n", '<script type="module" src="{}"></script>', ((static(name),) for name in names))
    return SafeString(f"{preloads}\n{scripts}")


@register.simple_block_tag(takes_context=True)
def after_styles(context: template.Context, content: str) -> SafeString:
    """Return a script that writes the content, which the browser runs once it has the stylesheet.

    Otherwise scripts would share a slow connection with the stylesheet, and the page stays blank until that has
    arrived. An inline script waits for the stylesheet, and browsers preload only tags in the HTML source. The written
    scripts run like those in the source: when the page is complete, in their order.
    """
    written = SafeString(json.dumps(content).replace("<", "\\u003c"))
    return format_html('<script nonce="{}">document.write({});</script>', context["request"].csp_nonce, written)


def _imports(name: str) -> Iterator[str]:
    """Yield all imports of a module, direct and indirect, each before its own imports; some more than once."""
    for each in _read(name) if settings.DEBUG else _cached(name):
        yield each
        yield from _imports(each)


def _read(name: str) -> tuple[str, ...]:
    path = find(name)
    if path is None:
        raise FileNotFoundError(f"{name} is not among the static files.")
    text = Path(path).read_text()
    return tuple(posixpath.normpath(posixpath.join(posixpath.dirname(name), each)) for each in IMPORT.findall(text))


_cached = lru_cache(maxsize=None)(_read)
