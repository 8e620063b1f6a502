from django.apps import AppConfig


class LedgerConfig(AppConfig):
    name = "chat.ledger"

    def ready(self) -> None:
        from chat.ledger.searching import record_search_call
        from files.index.ledger import register_ledger

        register_ledger(record_search_call)
