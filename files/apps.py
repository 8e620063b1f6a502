from django.apps import AppConfig


class FilesConfig(AppConfig):
    name = "files"

    def ready(self) -> None:
        from accounts.access.holds import register_hold
        from core.jobs import register
        from files.ingest import INDEXINGS, READS, give_up_reading, requeue_lost
        from files.models import File
        from files.registry import register_stored_model

        register_hold(File, "owner__legal_hold")
        register_stored_model(File)
        register(READS, give_up=give_up_reading, on_lost=requeue_lost)
        register(INDEXINGS)
