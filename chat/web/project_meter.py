"""What a project's files mean for the models of the workspace: inline or by search, and for which models all fit."""

from dataclasses import dataclass
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from accounts.access.sessions import SignedInRequest as Request
from accounts.models import User
from chat.context.rendering import Numbers
from chat.models import Conversation
from chat.models.conversation_state import ChatScope
from chat.prompts import builder
from chat.prompts.history import Documents, ProjectFiles, project_files
from chat.prompts.turn_context import base_context
from llm.models import Model
from personas.services import model_for
from projects.models import Project
from projects.services import visible_project


@dataclass(frozen=True, slots=True)
class ModelFit:
    name: str
    fits: bool


@dataclass(frozen=True, slots=True)
class Meter:
    """For the model that would answer in the project: `line` and `inline_tokens` in tokens, files by id.

    `models`: for every model, whether all of the project's files would be inline.
    """

    model: str
    line: int
    inline_tokens: int
    inline: list[str]
    by_search: list[str]
    failed: list[str]
    models: list[ModelFit]


def project_meter(*, user: User, project: Project) -> Meter:
    scope = ChatScope(None, project, project.persona)
    chosen = model_for(project.persona)
    files, failed = _files(user, project, scope, chosen)
    fits = [
        ModelFit(model.name, not _files(user, project, scope, model)[0].by_search) for model in Model.objects.usable()
    ]
    return Meter(
        model=chosen.name,
        line=files.line,
        inline_tokens=files.inline_tokens,
        inline=[document.id for document in files.inline],
        by_search=[document.id for document in files.by_search],
        failed=failed,
        models=fits,
    )


def _files(user: User, project: Project, scope: ChatScope, model: Model) -> tuple[ProjectFiles, list[str]]:
    context = base_context(user=user, model=model, scope=scope)
    documents = Documents(context.tokenizer, model.vision, Numbers())
    files = project_files(project, documents, room=builder.project_room(context), profile=context.profile)
    return files, [report.id or "" for report in documents.reports if report.reason == "failed_file"]


SHOWN = 50


@require_GET
def meter(request: Request, pk: UUID) -> HttpResponse:
    found = project_meter(user=request.user, project=visible_project(request.user, pk))
    return render(request, "projects/_meter.html", {"meter": found})


@require_GET
def conversations(request: Request, pk: UUID) -> HttpResponse:
    """One's own conversations in the project, the newest first: members share files, not what they talk about."""
    project = visible_project(request.user, pk)
    rows = Conversation.objects.listed_for(request.user).filter(project=project, archived=False)[:SHOWN]
    return render(request, "projects/_conversations.html", {"conversations": rows, "project": project})
