from django.apps import AppConfig
from django.conf import settings
from django.utils.module_loading import import_string


class CoreConfig(AppConfig):
    name = "core"

    def ready(self) -> None:
        if settings.OTEL_EXPORTER_OTLP_ENDPOINT:
            import_string("core.logs.otlp.use")()
