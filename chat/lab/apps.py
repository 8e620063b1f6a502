from django.apps import AppConfig


class LabConfig(AppConfig):
    name = "chat.lab"

    def ready(self) -> None:
        from chat.lab.services import REPLAYS, give_up
        from core.jobs import register

        register(REPLAYS, give_up=give_up)
