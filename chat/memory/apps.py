from django.apps import AppConfig


class MemoryConfig(AppConfig):
    name = "chat.memory"

    def ready(self) -> None:
        """Register legal holds and the pass over finished conversations with lower-level apps."""
        from accounts.access.holds import register_hold
        from chat.memory.models import Fact, Profile
        from chat.memory.passes import PASSES, give_up
        from core.jobs import register

        register_hold(Fact, "owner__legal_hold", "sources__message__conversation__legal_hold")
        register_hold(Profile, "person__legal_hold")
        register(PASSES, give_up=give_up)
