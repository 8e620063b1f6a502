from projects.models.invitation import Invitation
from projects.models.project import Membership, Project, ProjectFile
from projects.models.task import CodeSeries, Task, TaskChange

__all__ = ["CodeSeries", "Invitation", "Membership", "Project", "ProjectFile", "Task", "TaskChange"]
