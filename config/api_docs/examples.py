"""`/api/examples/`: the example programs of docs/examples, with the address of this site."""

from dataclasses import dataclass
from functools import cache

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.functional import Promise
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from chat.rendering.markdown import render as rendered

SITE = "http://127.0.0.1:8000"  # the placeholder in the programs for the address of the site
DIRECTORY = settings.BASE_DIR / "docs" / "examples"


@dataclass(frozen=True, slots=True)
class Example:
    """An example program. `needs`: the command that installs its packages, or empty."""

    name: str
    file: str
    language: str
    title: Promise
    needs: str = ""

    def source(self, site: str) -> str:
        return _source(self.file).replace(SITE, site)


EXAMPLES = (
    Example("curl", "curl.sh", "bash", _("The API with curl")),
    Example("python", "openai_client.py", "python", _("OpenAI’s client for Python"), "pip install openai"),
    Example("javascript", "openai_client.mjs", "javascript", _("OpenAI’s client for JavaScript"), "npm install openai"),
    Example("websocket", "websocket_client.py", "python", _("The WebSocket in Python"), "pip install websockets"),
    Example("webhook", "webhook_receiver.py", "python", _("A receiver of webhooks in Python")),
)


@cache
def _source(file: str) -> str:
    return (DIRECTORY / file).read_text()


def _html(example: Example, site: str) -> SafeString:
    return SafeString("".join(rendered(f"```{example.language}\n{example.source(site)}```")))


@login_required
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    site = request.build_absolute_uri("/").rstrip("/")
    examples = [(each, _html(each, site)) for each in EXAMPLES]
    return render(request, "examples.html", {"examples": examples, "section": "settings"})
