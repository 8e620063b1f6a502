from django.apps import AppConfig


class ProjectsConfig(AppConfig):
    name = "projects"

    def ready(self) -> None:
        from accounts.access.holds import register_hold
        from accounts.models import User
        from files.models import File
        from projects.models import Project

        register_hold(Project, "owner__legal_hold")
        register_hold(File, "project_entries__project__owner__legal_hold")
        register_hold(User, "files__project_entries__project__owner__legal_hold")
