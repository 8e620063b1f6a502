from django.apps import AppConfig


class SavedPromptsConfig(AppConfig):
    name = "projects.saved_prompts"

    def ready(self) -> None:
        from accounts.access.holds import register_hold
        from projects.saved_prompts.models import SavedPrompt

        register_hold(SavedPrompt, "owner__legal_hold", "project__owner__legal_hold")
