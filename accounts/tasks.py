"""Celery tasks of this app."""

from celery import shared_task

from accounts.access import idempotency
from accounts.access.sessions import SessionStore
from accounts.webhooks import services as webhooks


@shared_task
def forget_expired() -> None:
    """Removes sessions, kept answers and deliveries that are past their time; nobody is shown either before that."""
    SessionStore.clear_expired()
    idempotency.forget_old()
    webhooks.forget_old()
