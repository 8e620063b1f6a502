"""The page of saved prompts: found, written, shared, copied and deleted."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from accounts.access.sessions import SignedInRequest as Request
from core.errors import ProductError
from core.permissions import has_right
from core.requests import with_row
from projects.models.roles import visible_project
from projects.saved_prompts import services
from projects.saved_prompts.models import SavedPrompt

EXAMPLES = {"open": "{{name}}", "suggested": "{{name:Ann}}", "chosen": "{{tone:friendly|formal}}"}
WORKSPACE = "workspace"  # the choice “for everybody”, where others are ids of projects


@require_http_methods(["GET", "POST"])
def prompts(request: Request) -> HttpResponse:
    """What the person sees; a POST saves a new one."""
    if request.method == "GET":
        return _page(request, written={"holder": request.GET.get("project", "")})
    try:
        services.create_saved_prompt(user=request.user, **_written(request))
    except ProductError as error:
        return _page(request, error, written=_form(request))
    return redirect("prompts:list")


@with_row(services.visible_saved_prompt)
def prompt(request: Request, found: SavedPrompt) -> HttpResponse:
    """Changes one, and who has it."""
    try:
        services.update_saved_prompt(user=request.user, prompt=found, fields=_written(request))
    except ProductError as error:
        return _page(request, error, changing={"pk": found.pk, **_form(request)})
    return redirect("prompts:list")


@with_row(services.visible_saved_prompt)
def copy(request: Request, found: SavedPrompt) -> HttpResponse:
    services.copy_saved_prompt(user=request.user, prompt=found)
    return redirect("prompts:list")


@with_row(services.visible_saved_prompt)
def delete(request: Request, found: SavedPrompt) -> HttpResponse:
    services.delete_saved_prompt(user=request.user, prompt=found)
    return redirect("prompts:list")


def _form(request: Request) -> dict[str, str]:
    return {name: request.POST[name] for name in ("name", "text", "holder") if name in request.POST}


def _written(request: Request) -> dict[str, Any]:
    """As the services take it. A form that does not say whose the prompt is leaves it with whom it is."""
    form = _form(request)
    holder = form.pop("holder", None)
    fields: dict[str, Any] = {"name": form.get("name", ""), "text": form.get("text", "")}
    if holder is None:
        return fields
    project = visible_project(request.user, holder) if holder not in ("", WORKSPACE) else None
    return {**fields, "project": project, "workspace": holder == WORKSPACE}


def _page(
    request: Request, error: ProductError | None = None, *, written: Mapping[str, str] | None = None, **more: object
) -> HttpResponse:
    query = request.GET.get("q", "")
    context = {
        "section": "personas",
        "query": query,
        "examples": EXAMPLES,
        "shelves": services.shelves(request.user, query),
        "projects": list(services.editable_projects(request.user)),
        "for_everybody": has_right(request.user, "add", SavedPrompt) or has_right(request.user, "change", SavedPrompt),
        "longest_name": SavedPrompt.MAX_NAME,
        "longest_text": SavedPrompt.MAX_TEXT,
        "problem": error,
        "written": written or {},
        **more,
    }
    return render(request, "prompts/list.html", context, status=error.status if error else 200)
