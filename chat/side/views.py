"""The list of conversations and what is done with one of them from there: rename, move, archive, delete, restore."""

from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST
from django_htmx.http import HttpResponseClientRedirect, trigger_client_event

from accounts.middleware import SignedInRequest as Request
from chat import services
from chat.deletion import restore_conversation
from chat.models import Conversation
from chat.side.groups import chosen_view, side
from chat.views import visible_conversation
from projects.models import Project
from projects.services import visible_project

MAX_PROJECTS = 200  # to choose from


@login_required
@require_GET
def conversations(request: Request) -> HttpResponse:
    """A page of the list (`after`), or what is there now of all that is shown (`through`: the last is the deepest).

    204 when that is what is shown already, by its tag (`seen`).
    """
    view = chosen_view(request.session, request.GET.get("side"))
    after, through = request.GET.get("after"), request.GET.getlist("through")
    shown = side(request.user, view, after, through[-1] if through else None)
    if request.GET.get("seen") == shown.tag:
        return HttpResponse(status=204)
    current = request.GET.get("current", "")
    return render(request, "chat/_conversations.html", {"side": shown, "current": current, "more": bool(after)})


@login_required
@require_GET
def organise(request: Request, pk: UUID) -> HttpResponse:
    """What can be done with a conversation: in a menu, or without scripts as a page."""
    found = visible_conversation(request, pk)
    projects = Project.objects.visible_to(request.user).only("id", "name").order_by("name")[:MAX_PROJECTS]
    fragment = request.headers.get("HX-Request")
    template = "chat/_organise.html" if fragment else "chat/organise.html"
    return render(request, template, {"conversation": found, "projects": projects})


@login_required
@require_POST
def rename(request: Request, pk: UUID) -> HttpResponse:
    return _changed(request, pk, {"title": request.POST.get("title", "")})


@login_required
@require_POST
def move(request: Request, pk: UUID) -> HttpResponse:
    """Into a project, or out of it when none is named."""
    named = request.POST.get("project")
    return _changed(request, pk, {"project": visible_project(request.user, named) if named else None})


@login_required
@require_POST
def archive(request: Request, pk: UUID) -> HttpResponse:
    return _changed(request, pk, {"archived": request.POST.get("archived") == "yes"})


@login_required
@require_POST
def delete(request: Request, pk: UUID) -> HttpResponse:
    found = visible_conversation(request, pk)
    services.delete_conversation(user=request.user, conversation=found)
    away = f"{reverse('chat:home')}?deleted={pk}"
    if not request.headers.get("HX-Request"):
        return redirect(away)
    if _on_its_page(request, found):
        return HttpResponseClientRedirect(away)
    return _side_changed(render(request, "chat/_deleted.html", {"deleted": found, "in_place": True}), found)


@login_required
@require_POST
def restore(request: Request, pk: UUID) -> HttpResponse:
    found = restore_conversation(user=request.user, pk=pk)
    if not request.headers.get("HX-Request"):
        return redirect("chat:conversation", pk)
    return _side_changed(HttpResponse(), found)


def _changed(request: Request, pk: UUID, fields: dict[str, Any]) -> HttpResponse:
    found = visible_conversation(request, pk)
    services.update_conversation(user=request.user, conversation=found, fields=fields)
    if not request.headers.get("HX-Request"):
        return redirect("chat:conversation", pk)
    return _side_changed(HttpResponse(status=204), found)


def _side_changed(response: HttpResponse, conversation: Conversation) -> HttpResponse:
    """Tells the page, whose list then comes anew in its place."""
    told = {"conversation": str(conversation.pk), "title": conversation.title}
    return trigger_client_event(response, "sidechange", told)


def _on_its_page(request: Request, conversation: Conversation) -> bool:
    here = urlsplit(request.headers.get("HX-Current-URL", "")).path
    return here == reverse("chat:conversation", args=[conversation.pk])
