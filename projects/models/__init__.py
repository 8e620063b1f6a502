from projects.models.invitation import Invitation
from projects.models.project import Membership, Project, ProjectFile

__all__ = ["Invitation", "Membership", "Project", "ProjectFile"]
