"""Make the pages an installable app: its manifest, its service worker and the offline page."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.templatetags.static import static
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from workspace.models.settings import workspace_of

PAGE_COLOUR = "#fdfdfb"  # the colours of static/css/tokens.css, in the light look
ACCENT_COLOUR = "#0f6b5c"
CACHED_FILES = ("css/app.css", "icons.svg", "icon.svg")


@require_GET
def manifest(request: HttpRequest) -> JsonResponse:
    sizes = ({"src": static(f"icon-{size}.png"), "sizes": f"{size}x{size}", "type": "image/png"} for size in (192, 512))
    scalable = {"src": static("icon.svg"), "sizes": "any", "type": "image/svg+xml"}
    home = reverse("chat:home")
    name = workspace_of(request).name
    contents = {
        "id": home,
        "name": name,
        "short_name": name,
        "description": _("A chat workspace that shows what the model sees."),
        "start_url": home,
        "scope": home,
        "display": "standalone",
        "background_color": PAGE_COLOUR,
        "theme_color": ACCENT_COLOUR,
        "icons": [scalable, *({**each, "purpose": "any maskable"} for each in sizes)],
    }
    return JsonResponse(contents, content_type="application/manifest+json")


@require_GET
def offline(request: HttpRequest) -> HttpResponse:
    """Show the offline page, which says that drafts are safe. The service worker stores it in the browser."""
    return render(request, "offline.html")


@require_GET
def service_worker(request: HttpRequest) -> HttpResponse:
    """Return the service worker. Its address is at the root, since its scope is all addresses below its own.

    Its text names the files of this version, so that browsers install the worker of each new version.
    """
    context = {"files": [static(name) for name in CACHED_FILES], "offline": reverse("offline")}
    response = render(request, "service-worker.js", context, content_type="text/javascript")
    response["Cache-Control"] = "no-cache"
    return response
