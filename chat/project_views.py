"""The parts of a project's page that only the conversation's side knows; the page loads them."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from accounts.middleware import SignedInRequest as Request
from chat.models import Conversation
from chat.project_plans import project_meter
from projects.services import visible_project

SHOWN = 50


@login_required
@require_GET
def meter(request: Request, pk: UUID) -> HttpResponse:
    found = project_meter(user=request.user, project=visible_project(request.user, pk))
    return render(request, "projects/_meter.html", {"meter": found})


@login_required
@require_GET
def conversations(request: Request, pk: UUID) -> HttpResponse:
    """One's own conversations in the project, the newest first: members share files, not what they talk about."""
    project = visible_project(request.user, pk)
    rows = Conversation.objects.listed_for(request.user).filter(project=project, archived=False)[:SHOWN]
    return render(request, "projects/_conversations.html", {"conversations": rows, "project": project})
