from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"
    verbose_name = "People"

    def ready(self) -> None:
        from accounts.access.holds import register_hold
        from accounts.models import User

        register_hold(User, "legal_hold")
