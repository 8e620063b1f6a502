from workspace.models.settings import DateAwareness, Workspace
from workspace.models.version import WorkspaceVersion

__all__ = ["DateAwareness", "Workspace", "WorkspaceVersion"]
