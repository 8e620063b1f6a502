from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"
    verbose_name = "People"

    def ready(self) -> None:
        from accounts.access.holds import register_hold
        from accounts.models import User
        from accounts.webhooks.sending import DELIVERIES
        from core.jobs import register

        register_hold(User, "legal_hold")
        register(DELIVERIES)
