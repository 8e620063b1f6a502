"""Serve the preview of a code block beside its answer, and the frame in which it is shown.

1. A script posts the kind of a block and its place among the versions; of Markdown also the text. The fragment goes
   into the panel.
2. Markdown is rendered here, as answers are. A diagram goes into the frame of `chat.web.diagrams`. HTML, SVG and tables
   go into the frame of this module: the script posts the source to it.
3. In the frame, a script of the product shows the source without anything that runs, loads or leads elsewhere
   (`static/js/preview-frame.js`). No script of a model runs: a browser's WebRTC would get past every policy.
"""

from django.http import HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_GET, require_POST

from accounts.access.sessions import SignedInRequest as Request
from chat.rendering.documents import DocumentRenderer
from chat.rendering.markdown import RenderAllowance
from core.errors import NotFound

# The source writes its own styles and pictures. `sandbox` also applies if a person opens the frame as a page.
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data:; font-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox allow-scripts"
)
# By kind, as `static/js/previews.js` names it: the title, and the ending of a downloaded file.
KINDS = {
    "html": (_("Web page"), "html"),
    "svg": (_("Picture"), "svg"),
    "csv": (_("Table"), "csv"),
    "tsv": (_("Table"), "tsv"),
    "markdown": (_("Document"), "md"),
    "mermaid": (_("Diagram"), "mmd"),
}
MAX_TEXT = 200_000  # characters of Markdown that are rendered


@require_POST
def preview(request: Request) -> HttpResponse:
    """Return the preview of a block as a fragment. Raises `NotFound` for an unknown kind."""
    kind = request.POST.get("kind", "")
    if kind not in KINDS:
        raise NotFound("kind of preview")
    title, ending = KINDS[kind]
    text = request.POST.get("text", "") if kind == "markdown" else ""
    context = {
        "kind": kind,
        "title": title,
        "ending": ending,
        "html": DocumentRenderer(RenderAllowance()).html(text[:MAX_TEXT]) if text else "",
        "shortened": len(text) > MAX_TEXT,
        "version": _number(request, "version"),
        "versions": _number(request, "versions"),
    }
    return render(request, "chat/_preview.html", context)


def _number(request: Request, name: str) -> int:
    """Return a number of the form; 1 without one. The script counts the versions, since it has the blocks."""
    value = request.POST.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 5 else 1


@require_GET
@xframe_options_sameorigin
def frame(request: Request) -> HttpResponse:
    response = render(request, "chat/preview_frame.html")
    response["Content-Security-Policy"] = POLICY.format(nonce=request.csp_nonce)
    return response
