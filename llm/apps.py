from django.apps import AppConfig


class LLMConfig(AppConfig):
    name = "llm"
    verbose_name = "Models"
