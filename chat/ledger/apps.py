from django.apps import AppConfig


class LedgerConfig(AppConfig):
    name = "chat.ledger"
