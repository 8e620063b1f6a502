import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
app = Celery("glasshouse", task_cls="core.background:Job")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.autodiscover_tasks(["chat.background"])


@setup_logging.connect
def _skip_logging_setup(**kwargs: Any) -> None:
    """Do nothing, since Django has set up logging. Celery's own setup would drop the workers' lines below a warning."""
