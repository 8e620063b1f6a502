"""The page of a person's saved prompts."""

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from accounts.access.sessions import SignedInRequest as Request
from core.errors import ProductError
from personas.models import SavedPrompt
from personas.prompts import services


@require_http_methods(["GET", "POST"])
def prompts(request: Request) -> HttpResponse:
    """All of them; a POST saves a new one."""
    if request.method == "GET":
        return _page(request)
    try:
        services.create(user=request.user, name=request.POST.get("name", ""), text=request.POST.get("text", ""))
    except ProductError as error:
        return _page(request, error, written=request.POST)
    return redirect("personas:prompts")


@require_POST
def prompt(request: Request, pk: UUID) -> HttpResponse:
    """Changes one."""
    found = services.visible_prompt(request.user, pk)
    fields = {name: request.POST[name] for name in ("name", "text") if name in request.POST}
    try:
        services.update(user=request.user, prompt=found, fields=fields)
    except ProductError as error:
        return _page(request, error, changing={"pk": found.pk, **fields})
    return redirect("personas:prompts")


@require_POST
def delete(request: Request, pk: UUID) -> HttpResponse:
    services.delete(user=request.user, prompt=services.visible_prompt(request.user, pk))
    return redirect("personas:prompts")


def _page(request: Request, error: ProductError | None = None, **more: object) -> HttpResponse:
    context = {
        "section": "personas",
        "prompts": SavedPrompt.objects.visible_to(request.user),
        "longest_name": SavedPrompt.MAX_NAME,
        "longest_text": SavedPrompt.MAX_TEXT,
        "problem": {"code": error.code, "detail": error.detail} if error else None,
        **more,
    }
    return render(request, "personas/prompts.html", context, status=error.status if error else 200)
