from projects.models.project import Membership, Project, ProjectFile
from projects.models.task import CodeSeries, Task, TaskChange

__all__ = ["CodeSeries", "Membership", "Project", "ProjectFile", "Task", "TaskChange"]
