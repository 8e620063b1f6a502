from django.apps import AppConfig


class SavedPromptsConfig(AppConfig):
    name = "projects.saved_prompts"
