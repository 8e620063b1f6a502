from django.apps import AppConfig


class AgUiConfig(AppConfig):
    name = "contrib.ag_ui"
