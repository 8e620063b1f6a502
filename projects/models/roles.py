"""Who may do what in a project: pages, API, services and the packages of the app ask here."""

from accounts.models import EDITING, Role, User, strongest
from core.errors import NotFound, ProductError
from core.permissions import Action, has_right
from core.requests import get_or_404
from projects.models.project import Membership, Project


def visible_project(user: User, pk: object) -> Project:
    """Raises `NotFound`."""
    rows = Project.objects.visible_to(user).select_related("owner", "persona")
    return get_or_404(rows, pk, "project")


def role_of(user: User, project: Project) -> Role:
    """The strongest that they have. Raises `NotFound` for who has none."""
    if project.owner_id == user.pk:
        return Role.OWNER
    given = Membership.objects.of(user).filter(project=project).values_list("role", flat=True)
    role = strongest(given)
    if role is None:
        raise NotFound("project")
    return role


def require_editor(*, user: User, project: Project) -> None:
    if not has_right(user, "change", project) and role_of(user, project) not in EDITING:
        raise ProductError(
            "not_editor",
            "You can read this project but not change it. Ask its owner to make you an editor.",
            status=403,
        )


def require_owner(*, user: User, project: Project, action: Action = "change") -> None:
    """One of its owners, or an administrator who has the right to that action."""
    if not has_right(user, action, project) and role_of(user, project) != Role.OWNER:
        raise ProductError("not_owner", "Only the owner of this project can do this. Ask them.", status=403)
