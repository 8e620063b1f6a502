"""Celery tasks of this app."""

from celery import shared_task

from accounts import idempotency
from accounts.sessions import SessionStore


@shared_task
def forget_expired() -> None:
    """Removes sessions and kept answers that are past their time; nobody is shown either before that."""
    SessionStore.clear_expired()
    idempotency.forget_old()
