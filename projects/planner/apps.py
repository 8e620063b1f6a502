from django.apps import AppConfig


class PlannerConfig(AppConfig):
    name = "projects.planner"

    def ready(self) -> None:
        from accounts.access.holds import register_hold
        from projects.planner.models import Task

        register_hold(Task, "owner__legal_hold", "runs__conversation__legal_hold")
