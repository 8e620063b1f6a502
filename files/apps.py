from django.apps import AppConfig


class FilesConfig(AppConfig):
    name = "files"

    def ready(self) -> None:
        from accounts.access.holds import register_hold
        from core.jobs import register
        from files.ingest import INDEXINGS, READS, give_up_reading, read_again
        from files.models import File
        from files.registry import count_as_stored

        register_hold(File, "owner__legal_hold")
        count_as_stored(File)
        register(READS, give_up=give_up_reading, on_lost=read_again)
        register(INDEXINGS)
