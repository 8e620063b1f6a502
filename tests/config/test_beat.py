"""Beat, the process that enqueues periodic tasks, knows tasks by their names and may be away for a while."""

import asyncio
import subprocess
import sys

import pytest
import redis
from django.conf import settings
from pytest_django.fixtures import Settings

from chat.background import schedule
from config import service_urls
from config.celery import app
from core.background import run_key
from files.tasks import sweep_files

SCHEDULED = sorted(str(each["task"]) for each in settings.CELERY_BEAT_SCHEDULE.values())
ELSEWHERE = service_urls.redis(settings.REDIS_URL, service_urls.CACHE_DB)  # where no running worker looks


@pytest.mark.process
def test_it_does_without_django_and_its_names_are_those_of_tasks() -> None:
    program = "import config.beat; from django.apps import apps; print(apps.ready, *config.beat.app.conf.beat_schedule)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=settings.BASE_DIR
    )
    assert ran.stdout.split() == ["False", *settings.CELERY_BEAT_SCHEDULE]
    app.loader.import_default_modules()
    assert set(SCHEDULED) <= set(app.tasks) and set(SCHEDULED) >= schedule.RUN_IN_PROCESS


@pytest.mark.django_db
def test_what_nobody_has_run_in_time_is_one_workers(settings: Settings) -> None:
    settings.STREAMS_URL = ELSEWHERE
    with redis.Redis.from_url(ELSEWHERE) as connection:
        connection.delete(*map(run_key, SCHEDULED))
        sweep_files.apply()  # as a worker that beat's message has reached
        others = [each for each in SCHEDULED if each != "files.tasks.sweep_files"]
        assert (sorted(asyncio.run(schedule.find_overdue_tasks())), asyncio.run(schedule.find_overdue_tasks())) == (
            others,
            [],
        )
        assert 5_000 < int(str(connection.pttl(run_key("files.tasks.sweep_files")))) <= 10_000
        connection.delete(run_key("chat.tasks.sweep_turns"))  # its time is over
    assert asyncio.run(schedule.find_overdue_tasks()) == ["chat.tasks.sweep_turns"]
