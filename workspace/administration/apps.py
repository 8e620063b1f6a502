from django.apps import AppConfig


class AdministrationConfig(AppConfig):
    name = "workspace.administration"
