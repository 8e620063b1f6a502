from django.apps import AppConfig


class ReadingsConfig(AppConfig):
    name = "chat.readings"

    def ready(self) -> None:
        from accounts.access.holds import register_hold
        from chat.readings.jobs import give_up, settle_lost
        from chat.readings.models import Reading
        from chat.readings.services import READINGS
        from core.jobs import register

        register_hold(Reading, "person__legal_hold", "conversation__legal_hold")
        register(READINGS, give_up=give_up, on_lost=settle_lost)
