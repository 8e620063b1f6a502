"""Downloads of conversations, for people and for programs (`/api/v1/`)."""

from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_GET, require_POST
from django_htmx.http import HttpResponseClientRedirect, trigger_client_event

from accounts.access.permissions import user_of_request
from accounts.access.sessions import SignedInRequest as Request
from accounts.models import User
from chat.conversations import export as exporting
from chat.conversations import services
from chat.conversations.deletion import restore_conversation
from chat.conversations.sidebar import chosen_view, side
from chat.models import Conversation
from chat.models.conversation_state import visible_conversation
from core.lookups import get_or_404
from projects.models import Project
from projects.services import visible_project


@require_GET
def export(request: Request, pk: UUID, kind: str) -> HttpResponse:
    return _one(request.user, pk, kind)


@require_GET
def export_all(request: Request) -> StreamingHttpResponse:
    return _all(request.user)


@require_GET
def api_export(request: HttpRequest, pk: UUID) -> HttpResponse:
    """`?kind=md` or `json`, the default."""
    return _one(user_of_request(request, "chat"), pk, request.GET.get("kind", "json"))


@require_GET
def api_export_all(request: HttpRequest) -> StreamingHttpResponse:
    return _all(user_of_request(request, "chat"))


def _one(user: User, pk: UUID, kind: str) -> HttpResponse:
    rows = Conversation.objects.visible_to(user).select_related("persona", "project")
    found = get_or_404(rows, pk, "conversation")
    response = HttpResponse(exporting.export(found, kind), content_type=exporting.KINDS[kind])
    name = exporting.file_name(found, kind)
    response["Content-Disposition"] = content_disposition_header(as_attachment=True, filename=name) or "attachment"
    response["Cache-Control"] = "private, no-store"
    return response


def _all(user: User) -> StreamingHttpResponse:
    response = StreamingHttpResponse(exporting.everything(user), content_type="application/zip")
    response["Content-Disposition"] = 'attachment; filename="conversations.zip"'
    response["Cache-Control"] = "private, no-store"
    return response


MAX_PROJECTS = 200  # to choose from


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


@require_GET
def organise(request: Request, pk: UUID) -> HttpResponse:
    """What can be done with a conversation: in a menu, or without scripts as a page."""
    found = visible_conversation(request.user, pk)
    projects = Project.objects.visible_to(request.user).only("id", "name").order_by("name")[:MAX_PROJECTS]
    template = "chat/_organise.html" if request.htmx else "chat/organise.html"
    return render(request, template, {"conversation": found, "projects": projects})


@require_POST
def rename(request: Request, pk: UUID) -> HttpResponse:
    return _changed(request, pk, {"title": request.POST.get("title", "")})


@require_POST
def move(request: Request, pk: UUID) -> HttpResponse:
    """Into a project, or out of it when none is named."""
    named = request.POST.get("project")
    return _changed(request, pk, {"project": visible_project(request.user, named) if named else None})


@require_POST
def archive(request: Request, pk: UUID) -> HttpResponse:
    return _changed(request, pk, {"archived": request.POST.get("archived") == "yes"})


@require_POST
def delete(request: Request, pk: UUID) -> HttpResponse:
    found = visible_conversation(request.user, pk)
    services.delete_conversation(user=request.user, conversation=found)
    away = f"{reverse('chat:home')}?deleted={pk}"
    if not request.htmx:
        return redirect(away)
    if _on_its_page(request, found):
        return HttpResponseClientRedirect(away)
    return _side_changed(render(request, "chat/_deleted.html", {"deleted": found, "in_place": True}), found)


@require_POST
def restore(request: Request, pk: UUID) -> HttpResponse:
    found = restore_conversation(user=request.user, pk=pk)
    if not request.htmx:
        return redirect("chat:conversation", pk)
    return _side_changed(HttpResponse(), found)


def _changed(request: Request, pk: UUID, fields: dict[str, Any]) -> HttpResponse:
    found = visible_conversation(request.user, pk)
    services.update_conversation(user=request.user, conversation=found, fields=fields)
    if not request.htmx:
        return redirect("chat:conversation", pk)
    return _side_changed(HttpResponse(status=204), found)


def _side_changed(response: HttpResponse, conversation: Conversation) -> HttpResponse:
    """Tells the page, whose list then comes anew in its place."""
    told = {"conversation": str(conversation.pk), "title": conversation.title}
    return trigger_client_event(response, "sidechange", told)


def _on_its_page(request: Request, conversation: Conversation) -> bool:
    here = urlsplit(request.headers.get("HX-Current-URL", "")).path
    return here == reverse("chat:conversation", args=[conversation.pk])
