from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "core.audit"
    default_auto_field = "django.db.models.BigAutoField"
