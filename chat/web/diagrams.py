"""Serve the frame that draws a diagram of an answer.

A model's text may be hostile and Mermaid may have flaws. So Mermaid runs in a frame without session, storage,
network or access to the page. Readers of a link need it, too, so it asks for no sign-in. It holds nothing of anybody.
"""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_GET

# Mermaid writes its styles into the drawing. `sandbox` also applies if a person opens the frame as a page.
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'; sandbox allow-scripts"
)


class FrameRequest(HttpRequest):
    """The request of a frame that anybody may open, for type checkers."""

    csp_nonce: object


@require_GET
@xframe_options_sameorigin
def frame(request: FrameRequest) -> HttpResponse:
    response = render(request, "chat/diagram.html")
    response["Content-Security-Policy"] = POLICY.format(nonce=request.csp_nonce)
    return response
