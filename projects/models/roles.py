"""Checks of the roles of users in projects, for pages, the API and services."""

from accounts.models import EDITING, Role, User, strongest
from core.errors import NotFound, ProductError
from core.permissions import Action, has_right
from core.requests import get_or_404
from projects.models.project import Membership, Project


def visible_project(user: User, pk: object) -> Project:
    """Return a project that the user may see. Raises `NotFound`."""
    rows = Project.objects.visible_to(user).select_related("owner", "persona")
    return get_or_404(rows, pk, "project")


def get_role(user: User, project: Project) -> Role:
    """Return the strongest role of the user. Raises `NotFound` if they have none."""
    if project.owner_id == user.pk:
        return Role.OWNER
    role = strongest(Membership.objects.of(user).filter(project=project).values_list("role", flat=True))
    if role is None:
        raise NotFound("project")
    return role


def require_editor(*, user: User, project: Project) -> None:
    if not has_right(user, "change", project) and get_role(user, project) not in EDITING:
        raise ProductError(
            "not_editor",
            "You can read this project but not change it. Ask its owner to make you an editor.",
            status=403,
        )


def require_owner(*, user: User, project: Project, action: Action = "change") -> None:
    """Check for an owner, or an administrator with the right to the action. Raises `not_owner` (403)."""
    if not has_right(user, action, project) and get_role(user, project) != Role.OWNER:
        raise ProductError("not_owner", "Only the owner of this project can do this. Ask them.", status=403)
