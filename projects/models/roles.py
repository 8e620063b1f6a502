"""Who may do what in a project: pages, API, services and the packages of the app ask here."""

from accounts.models import User
from core.errors import ProductError
from core.permissions import Action, has_right
from core.requests import get_or_404, or_404
from projects.models.project import Membership, Project

OWNER = "owner"


def visible_project(user: User, pk: object) -> Project:
    """Raises `NotFound`."""
    rows = Project.objects.visible_to(user).select_related("owner", "persona")
    return get_or_404(rows, pk, "project")


def role_of(user: User, project: Project) -> str:
    """owner, editor or reader. Raises `NotFound` for everybody else."""
    if project.owner_id == user.pk:
        return OWNER
    membership = or_404(Membership.objects.filter(project=project, user=user).first(), "project")
    return membership.role


def require_editor(*, user: User, project: Project) -> None:
    if not has_right(user, "change", project) and role_of(user, project) == Membership.Role.READER:
        raise ProductError(
            "not_editor",
            "You can read this project but not change it. Ask its owner to make you an editor.",
            status=403,
        )


def require_owner(*, user: User, project: Project, action: Action = "change") -> None:
    """Its owner, or an administrator who has the right to that action."""
    if not has_right(user, action, project) and role_of(user, project) != OWNER:
        raise ProductError("not_owner", "Only the owner of this project can do this. Ask them.", status=403)
