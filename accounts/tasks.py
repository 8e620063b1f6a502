"""Celery tasks of this app."""

from celery import shared_task

from accounts import idempotency
from accounts.sessions import SessionStore
from accounts.webhooks import services as webhooks
from accounts.webhooks import tasks as webhook_tasks

__all__ = ["forget_expired", "webhook_tasks"]  # Celery looks for tasks here alone


@shared_task
def forget_expired() -> None:
    """Removes sessions, kept answers and deliveries that are past their time; nobody is shown either before that."""
    SessionStore.clear_expired()
    idempotency.forget_old()
    webhooks.forget_old()
