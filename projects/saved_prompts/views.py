"""The page where users search, write, share, copy and delete saved prompts."""

from collections.abc import Mapping

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
WORKSPACE_CHOICE = "workspace"  # the choice “for everybody”; other choices are ids of projects


@require_http_methods(["GET", "POST"])
def prompts(request: Request) -> HttpResponse:
    """Show the visible prompts. A POST saves a new one."""
    if request.method == "GET":
        return _page(request, written={"holder": request.GET.get("project", "")})
    try:
        fields = _fields(request)
        services.create_saved_prompt(
            user=request.user,
            name=fields["name"],
            text=fields["text"],
            project=fields.get("project"),
            workspace=fields.get("workspace", False),
        )
    except ProductError as error:
        return _page(request, error, written=_form(request))
    return redirect("prompts:list")


@with_row(services.visible_saved_prompt)
def prompt(request: Request, row: SavedPrompt) -> HttpResponse:
    """Change a prompt, or move it to another holder."""
    try:
        services.update_saved_prompt(user=request.user, prompt=row, fields=_fields(request))
    except ProductError as error:
        return _page(request, error, changing={"pk": row.pk, **_form(request)})
    return redirect("prompts:list")


@with_row(services.visible_saved_prompt)
def copy(request: Request, row: SavedPrompt) -> HttpResponse:
    services.copy_saved_prompt(user=request.user, prompt=row)
    return redirect("prompts:list")


@with_row(services.visible_saved_prompt)
def delete(request: Request, row: SavedPrompt) -> HttpResponse:
    services.delete_saved_prompt(user=request.user, prompt=row)
    return redirect("prompts:list")


def _form(request: Request) -> dict[str, str]:
    return {name: request.POST[name] for name in ("name", "text", "holder") if name in request.POST}


def _fields(request: Request) -> services.PromptFields:
    """Return the fields of the form. If the form has no holder, the holder does not change."""
    fields: services.PromptFields = {"name": request.POST.get("name", ""), "text": request.POST.get("text", "")}
    holder = request.POST.get("holder")
    if holder is not None:
        fields["project"] = visible_project(request.user, holder) if holder not in ("", WORKSPACE_CHOICE) else None
        fields["workspace"] = holder == WORKSPACE_CHOICE
    return fields


def _page(
    request: Request,
    error: ProductError | None = None,
    *,
    written: Mapping[str, str] | None = None,
    changing: Mapping[str, object] | None = None,
) -> HttpResponse:
    """Show the page. `written`: the form of a new prompt. `changing`: the form of the stored prompt with the error."""
    query = request.GET.get("q", "")
    context = {
        "section": "personas",
        "query": query,
        "examples": EXAMPLES,
        "shelves": services.prompts_by_holder(request.user, query),
        "projects": list(services.editable_projects(request.user)),
        "for_everybody": has_right(request.user, "add", SavedPrompt) or has_right(request.user, "change", SavedPrompt),
        "longest_name": SavedPrompt.MAX_NAME,
        "longest_text": SavedPrompt.MAX_TEXT,
        "problem": error,
        "written": written or {},
        "changing": changing or {},
    }
    return render(request, "prompts/list.html", context, status=error.status if error else 200)
