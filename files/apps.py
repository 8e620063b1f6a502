from django.apps import AppConfig


class FilesConfig(AppConfig):
    name = "files"

    def ready(self) -> None:
        from accounts.access.holds import register_hold
        from files.models import File
        from files.registry import count_as_stored

        register_hold(File, "owner__legal_hold")
        count_as_stored(File)
