"""Create the sample project that shows how Glasshouse works, with its persona. Each user can have a copy."""

from django.conf import settings
from django.core.files.base import ContentFile
from django.db import transaction

from accounts.models import User
from files.services import store
from personas.models import Persona
from personas.services import create_persona
from personas.sharing.names import unique_name
from projects.models import Project
from projects.services import ProjectFields, add_file, create_project

NAME = "A look at Glasshouse"
SAMPLE_FILES = settings.BASE_DIR / "config" / "demo"
GUIDE_PROMPT = """\
You show people around Glasshouse. Answer from the files of the project, in two or three plain sentences, and name the \
file you rely on. When the files do not say it, say so.\
"""


@transaction.atomic
def create_sample_project(*, user: User) -> Project:
    """Create the user's own copy of the project, or return the one that they have.

    Its files count towards the user's storage. Raises the errors of `files.services.store`.
    """
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # two clicks must create one project
    existing = Project.objects.filter(owner=user, name=NAME).order_by("created").first()
    if existing is not None:
        return existing
    fields: ProjectFields = {
        "name": NAME,
        "instructions": "This project shows how Glasshouse works. Its readers see it for the first time.",
        "persona": _get_or_create_guide(user),
    }
    project = create_project(user=user, fields=fields)
    for number, path in enumerate(sorted(SAMPLE_FILES.glob("*.md"))):
        file = store(user=user, name=path.name, content=ContentFile(path.read_bytes()))
        add_file(user=user, project=project, file=file, pinned=number == 0)
    return project


def _get_or_create_guide(user: User) -> Persona:
    return create_persona(
        user=user,
        fields={
            "name": unique_name("Guide", user),
            "description": "Explains Glasshouse from the files of its demo project.",
            "instructions": GUIDE_PROMPT,
            "starter_messages": ["What is a window?", "What happens to old messages?", "What could I try first?"],
        },
    )
