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
def _leave_as_it_is(**kwargs: Any) -> None:
    """Django has set the log up; Celery would have workers say nothing below a warning, as that a model was asked."""
