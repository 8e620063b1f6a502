from projects.planner.models.task import CodeSeries, Task, TaskChange

__all__ = ["CodeSeries", "Task", "TaskChange"]
