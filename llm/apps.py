from django.apps import AppConfig


class LLMConfig(AppConfig):
    name = "llm"
