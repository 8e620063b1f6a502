"""Celery tasks of this app."""

from celery import shared_task

from core import jobs


@shared_task(name="core.tasks.sweep_jobs")
def sweep_jobs() -> None:
    """Sweep the jobs of every kind. Runs every 5 seconds."""
    jobs.sweep_all()
