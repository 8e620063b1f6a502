from django.apps import AppConfig


class ReadingsConfig(AppConfig):
    name = "chat.readings"

    def ready(self) -> None:
        from accounts.access.holds import register_hold
        from chat.readings.models import Reading

        register_hold(Reading, "person__legal_hold", "conversation__legal_hold")
