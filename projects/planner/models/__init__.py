from projects.planner.models.run import Run, RunStep
from projects.planner.models.task import CodeSeries, Task, TaskChange

__all__ = ["CodeSeries", "Run", "RunStep", "Task", "TaskChange"]
