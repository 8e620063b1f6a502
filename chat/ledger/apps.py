from django.apps import AppConfig


class LedgerConfig(AppConfig):
    name = "chat.ledger"

    def ready(self) -> None:
        from chat.ledger.searching import written_down
        from files.index.ledger import write_down_in

        write_down_in(written_down)
