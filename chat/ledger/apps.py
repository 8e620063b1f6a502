from django.apps import AppConfig


class LedgerConfig(AppConfig):
    name = "chat.ledger"

    def ready(self) -> None:
        from chat.ledger.searching import record_search_call
        from chat.ledger.speaking import record_speech_call
        from files.index.ledger import register_ledger
        from files.speech.ledger import register_speech_ledger

        register_ledger(record_search_call)
        register_speech_ledger(record_speech_call)
