"""Page with the shares of a persona. A script shows its main part in a dialog."""

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import redirect, render

from accounts.access.rights import may
from accounts.access.sessions import SignedInRequest as Request
from accounts.models import Right, Role
from core.errors import ProductError
from core.permissions import has_right
from core.requests import with_row
from personas.models import Persona, PersonaShare
from personas.sharing import services
from personas.sharing.roles import is_owner, require_owner, strongest_role, visible_persona


@with_row(visible_persona, "GET", "POST")
def shares(request: Request, persona: Persona) -> HttpResponse:
    """Show the shares. A POST adds one for a `username` or a `group` (an id)."""
    if request.method != "POST":
        return _render_page(request, persona)
    try:
        services.share(
            user=request.user,
            persona=persona,
            username=request.POST.get("username", ""),
            group=request.POST.get("group") or None,
            role=request.POST.get("role", Role.READER),
        )
    except ProductError as error:
        if error.code not in ("bad_username", "owner_has_it", "too_many_shares"):
            raise
        return _render_page(request, persona, error)
    return _show_shares(request, persona)


@with_row(visible_persona)
def change(request: Request, persona: Persona, share: UUID) -> HttpResponse:
    services.change_share(user=request.user, persona=persona, share=share, role=request.POST.get("role", ""))
    return _show_shares(request, persona)


@with_row(visible_persona)
def remove(request: Request, persona: Persona, share: UUID) -> HttpResponse:
    """Remove a share. A user who removed their own share sees the list of personas again."""
    services.remove_share(user=request.user, persona=persona, share=share)
    if not is_owner(request.user, persona):
        return redirect("personas:list")
    return _show_shares(request, persona)


@with_row(visible_persona)
def hand_over(request: Request, persona: Persona, share: UUID) -> HttpResponse:
    return _show_shares(request, services.hand_over(user=request.user, persona=persona, share=share))


def _show_shares(request: Request, persona: Persona) -> HttpResponse:
    return _render_page(request, persona) if request.htmx else redirect("personas:shares", persona.pk)


def shares_context(request: Request, persona: Persona) -> dict[str, object]:
    """Return the template context of the dialog: all shares for an owner, for other users only `own_share`."""
    user = request.user
    if not is_owner(user, persona):
        return {"own_share": PersonaShare.objects.filter(persona=persona, user=user).first()}
    return {
        "shares": services.list_shares(user, persona),
        "groups": services.addable_groups(user, persona),
        "roles": Role.choices,
        "sharing": may(user, Right.PUBLISH_PERSONAS) or has_right(user, "change", persona),
        "hands_over": strongest_role(user, persona) == Role.OWNER,
    }


def _render_page(request: Request, persona: Persona, problem: ProductError | None = None) -> HttpResponse:
    require_owner(user=request.user, persona=persona)
    page_context = {
        **shares_context(request, persona),
        "section": "personas",
        "persona": persona,
        "problem": problem,
        "username": request.POST.get("username", "") if problem else "",
    }
    name = "personas/_shares.html" if request.htmx else "personas/shares.html"
    # htmx shows a response only if its status is a success.
    return render(request, name, page_context, status=problem.status if problem and not request.htmx else 200)
