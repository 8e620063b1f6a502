"""Members of projects in tests: invited and accepted, as people do it."""

from accounts.models import User
from projects.invitations import accept, invite
from projects.models import Project


def join(project: str, person: User, role: str = "reader") -> None:
    """`project`: its id."""
    row = Project.objects.select_related("owner").get(pk=project)
    invitation = invite(user=row.owner, project=row, username=person.username, role=role)
    accept(user=person, invitation=invitation)
