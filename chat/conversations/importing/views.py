"""The pages of imports: uploading an export, watching it, and what became of each conversation."""

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from accounts.access.sessions import SignedInRequest as Request
from chat.conversations.importing import services as import_services
from chat.models import Import
from core.errors import ProductError

LISTED = 20
SHOWN = 1_000  # results


@require_http_methods(["GET", "POST"])
def imports(request: Request) -> HttpResponse:
    problem: ProductError | None = None
    if request.method == "POST":
        try:
            return redirect("chat:import", _start(request).pk)
        except ProductError as error:
            problem = error
    rows = Import.objects.visible_to(request.user).defer("results")[:LISTED]
    context = {"section": "settings", "place": "import", "imports": rows, "problem": problem}
    return render(request, "chat/imports.html", context, status=problem.status if problem else 200)


@require_GET
def one(request: Request, pk: UUID) -> HttpResponse:
    """A fragment for the page that waits, or the page."""
    job = import_services.visible_import(request.user, pk)
    # What did not come along is what somebody looks for, so it comes first.
    results = sorted(job.results, key=lambda result: ("skipped", "known", "imported").index(result["outcome"]))
    context = {
        "section": "settings",
        "place": "import",
        "job": job,
        "results": results[:SHOWN],
        "hidden": max(0, len(results) - SHOWN),
    }
    return render(request, "chat/_import.html" if request.htmx else "chat/import.html", context)


def _start(request: Request) -> Import:
    given = request.FILES.get("file")
    if given is None:
        raise ProductError("no_file", "Choose the export first: the zip, or the conversations.json in it.")
    return import_services.start_import(user=request.user, name=given.name or "", content=given)
