"""The frame in which a diagram of an answer is drawn. What a model writes may be hostile and Mermaid may have flaws, so
its script runs where there is no session, no storage, no network and no page around it."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_GET

from accounts.access.sessions import SignedInRequest as Request

# Mermaid writes its styles into the drawing. `sandbox` holds where the page is opened by itself, too.
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'; sandbox allow-scripts"
)


@require_GET
@xframe_options_sameorigin
def frame(request: Request) -> HttpResponse:
    response = render(request, "chat/diagram.html")
    response["Content-Security-Policy"] = POLICY.format(nonce=request.csp_nonce)
    return response
