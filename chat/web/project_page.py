"""Serve the page of a project: the composer on top, the user's conversations below it, and beside them the project."""

from django.http import HttpResponse
from django.shortcuts import render

from accounts.access.sessions import SignedInRequest as Request
from chat.conversations.services import visible_persona
from chat.models.conversation_state import ChatScope
from chat.web import conversation as conversation_page
from chat.web.home import own_conversations
from core.requests import with_row
from projects.models import Project
from projects.models.roles import visible_project


@with_row(visible_project, "GET")
def project(request: Request, row: Project) -> HttpResponse:
    persona = visible_persona(request.user, request.GET.get("persona"))
    return conversation_page.page(request, None, scope=ChatScope(None, row, persona or row.persona))


@with_row(visible_project, "GET")
def conversations(request: Request, row: Project) -> HttpResponse:
    """Return a fragment with the user's conversations in the project, for a page that is already open."""
    return render(request, "projects/_conversations.html", {"project": row, **own_conversations(request.user, row)})
