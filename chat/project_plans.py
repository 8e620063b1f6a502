"""What a project's files mean for the models of the workspace: inline or by search, and for which models all fit."""

from dataclasses import dataclass

from accounts.models import User
from chat import prompts
from chat.context.documents import Numbers
from chat.documents import Documents, ProjectFiles, project_files
from llm.models import Model
from personas.services import model_for
from projects.models import Project


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
    place = prompts.Place(None, project, project.persona)
    chosen = model_for(project.persona)
    files, failed = _files(user, project, place, chosen)
    fits = [
        ModelFit(model.name, not _files(user, project, place, model)[0].by_search) for model in Model.objects.usable()
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


def _files(user: User, project: Project, place: prompts.Place, model: Model) -> tuple[ProjectFiles, list[str]]:
    setting = prompts.setting(user=user, model=model, place=place)
    documents = Documents(setting.tokenizer, model.vision, Numbers())
    files = project_files(project, documents, room=prompts.project_room(setting), profile=setting.profile)
    return files, [report.id or "" for report in documents.reports if report.reason == "failed_file"]
