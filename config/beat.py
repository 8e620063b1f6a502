"""`celery -A config.beat beat`: add due tasks to the queues, by name.

The Celery app of the workers would load Django with every app of the product, which takes four times the memory.
"""

import logging.config
import os

from celery import Celery
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
app = Celery("glasshouse", fixups=[])
app.config_from_object("django.conf:settings", namespace="CELERY")
logging.config.dictConfig(settings.LOGGING)
