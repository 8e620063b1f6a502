"""`celery -A config.beat beat`: puts what is due into the queues, and knows tasks by their names alone.

The Celery app of the workers would load Django with every app of the product for that, four times the memory.
"""

import logging.config
import os

from celery import Celery
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
app = Celery("glasshouse", fixups=[])
app.config_from_object("django.conf:settings", namespace="CELERY")
logging.config.dictConfig(settings.LOGGING)
