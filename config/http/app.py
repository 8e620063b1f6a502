"""What makes the pages an app on somebody's device: its manifest, the worker that stands by when the network does not,
and the page that it then shows."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.templatetags.static import static
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from workspace.models.settings import workspace_of

PAGE, ACCENT = "#fdfdfb", "#0f6b5c"  # of static/css/tokens.css, in the light look
SHELL = ("css/app.css", "icons.svg", "icon.svg")


@require_GET
def manifest(request: HttpRequest) -> JsonResponse:
    sizes = ({"src": static(f"icon-{size}.png"), "sizes": f"{size}x{size}", "type": "image/png"} for size in (192, 512))
    drawn = {"src": static("icon.svg"), "sizes": "any", "type": "image/svg+xml"}
    home, name = reverse("chat:home"), workspace_of(request).name
    described = {
        "id": home,
        "name": name,
        "short_name": name,
        "description": _("A chat workspace that shows what the model sees."),
        "start_url": home,
        "scope": home,
        "display": "standalone",
        "background_color": PAGE,
        "theme_color": ACCENT,
        "icons": [drawn, *({**each, "purpose": "any maskable"} for each in sizes)],
    }
    return JsonResponse(described, content_type="application/manifest+json")


@require_GET
def offline(request: HttpRequest) -> HttpResponse:
    """Kept by the service worker: says that there is no network, and that drafts are still there."""
    return render(request, "offline.html")


@require_GET
def service_worker(request: HttpRequest) -> HttpResponse:
    """At the root, since it stands for all addresses below its own. Its text names the files of this version, so that a
    new version is another worker."""
    context = {"files": [static(name) for name in SHELL], "offline": reverse("offline")}
    response = render(request, "service-worker.js", context, content_type="text/javascript")
    response["Cache-Control"] = "no-cache"
    return response
