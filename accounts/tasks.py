"""Celery tasks of this app."""

from celery import shared_task

from accounts import idempotency, webhook_tasks, webhooks
from accounts.sessions import SessionStore

__all__ = ["forget_expired", "webhook_tasks"]  # Celery looks for tasks here alone


@shared_task
def forget_expired() -> None:
    """Removes sessions, kept answers and deliveries that are past their time; nobody is shown either before that."""
    SessionStore.clear_expired()
    idempotency.forget_old()
    webhooks.forget_old()
