from django.apps import AppConfig


class PersonasConfig(AppConfig):
    name = "personas"
    verbose_name = "Prompts"

    def ready(self) -> None:
        from accounts.access.holds import register_hold
        from accounts.deletion import on_user_delete
        from personas.models import Persona, Reminder
        from personas.services import delete_reminders_of_user

        register_hold(Persona, "owner__legal_hold")
        register_hold(Reminder, "personas__owner__legal_hold")
        on_user_delete(delete_reminders_of_user)
