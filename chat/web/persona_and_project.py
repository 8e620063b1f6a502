"""Serve the parts of persona and project pages that need conversations.

They show the plan of a persona, its uses before it is deleted, and the meter of a project's files.
"""

from dataclasses import dataclass

from django.http import HttpResponse
from django.shortcuts import redirect, render

from accounts.access.rights import models_of
from accounts.access.sessions import SignedInRequest as Request
from accounts.models import User
from chat.models import Conversation
from chat.models.conversation_state import ChatScope
from chat.prompts import builder, inspector
from chat.prompts.files import ProjectFiles
from chat.prompts.history import READABLE
from chat.prompts.preview import TurnDraft, plan_ahead
from chat.prompts.turn_context import base_context, context_of_draft
from chat.prompts.wording import plan_line
from core.requests import with_row
from core.text import unix_lines
from llm.models import Model
from personas import services
from personas.models import Persona
from personas.services import model_for
from personas.sharing.roles import require_owner, visible_persona
from projects.models import Project
from projects.models.roles import visible_project
from projects.services import project_files


@with_row(visible_persona)
def plan(request: Request, persona: Persona) -> HttpResponse:
    """Show the plan of a sample message with the stored persona: a fragment, or a page."""
    draft = TurnDraft(unix_lines(request.POST.get("text", "")))
    planned = plan_ahead(user=request.user, scope=ChatScope(persona=persona), draft=draft)
    context = {"panel": inspector.of_plan(planned), "line": plan_line(planned), "persona": persona}
    return render(request, "chat/_context.html" if request.htmx else "personas/plan.html", context)


@with_row(visible_persona, "GET", "POST")
def delete(request: Request, persona: Persona) -> HttpResponse:
    """Show how many conversations and projects use the persona; a POST deletes it."""
    require_owner(user=request.user, persona=persona)
    if request.method == "POST":
        services.delete_persona(user=request.user, persona=persona)
        return redirect("personas:list")
    # The owner of a shared persona needs the number; it reveals nothing of other people's conversations.
    uses = {
        "conversations": Conversation.objects.filter(persona=persona, origin=Conversation.Origin.WORKSPACE).count(),
        "projects": Project.objects.filter(persona=persona).count(),
    }
    return render(request, "personas/delete.html", {"persona": persona, **uses})


@dataclass(frozen=True, slots=True)
class ModelFit:
    """The part of a project's files that a model would get.

    `whole`: every text is sent whole. `unseen`: the number of pictures that are not sent.
    """

    model: Model
    whole: bool
    unseen: int


@dataclass(frozen=True, slots=True)
class ProjectMeter:
    """The project's files as they would be sent to its `model` with a message of the expected length.

    `failed` is the number of files that cannot be sent, `unseen` the number of pictures that this model would not see.
    `models` has every model of the user.
    """

    model: Model
    files: ProjectFiles
    failed: int
    unseen: int
    models: list[ModelFit]


def project_meter(*, user: User, project: Project) -> ProjectMeter:
    """Return the meter of a project for this user."""
    scope = ChatScope(None, project, project.persona)
    chosen = model_for(project.persona, user)
    files, failed = _files(user, scope, chosen)
    pictures = sum(file.is_image and file.status in READABLE for file in project_files(project))
    fits = []
    for model in models_of(user):
        sent = _files(user, scope, model)[0]
        fits.append(ModelFit(model, not sent.by_search, pictures - len(sent.images)))
    return ProjectMeter(chosen, files, failed, pictures - len(files.images), fits)


def _files(user: User, scope: ChatScope, model: Model) -> tuple[ProjectFiles, int]:
    """Return the project's files for this model, and the number of those that cannot be sent."""
    base = base_context(user=user, model=model, scope=scope)
    files, documents = builder.expected_files(context_of_draft(base=base, scope=scope, text="", files=()))
    return files, sum(report.reason == "failed_file" for report in documents.reports)


@with_row(visible_project, "GET")
def meter(request: Request, project: Project) -> HttpResponse:
    return render(request, "projects/_meter.html", {"meter": project_meter(user=request.user, project=project)})
