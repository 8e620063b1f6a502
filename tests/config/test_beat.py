"""The process that puts what is due into the queues knows tasks by their names."""

import subprocess
import sys

from django.conf import settings

from config.celery import app


def test_it_does_without_django_and_its_names_are_those_of_tasks() -> None:
    said = "import config.beat; from django.apps import apps; print(apps.ready, *config.beat.app.conf.beat_schedule)"
    ran = subprocess.run(
        [sys.executable, "-c", said], capture_output=True, text=True, check=True, cwd=settings.BASE_DIR
    )
    assert ran.stdout.split() == ["False", *settings.CELERY_BEAT_SCHEDULE]
    app.loader.import_default_modules()
    assert {each["task"] for each in settings.CELERY_BEAT_SCHEDULE.values()} <= set(app.tasks)
