"""Celery tasks of this app."""

from uuid import UUID

from celery import shared_task

from accounts import people
from accounts.access.sessions import SessionStore
from accounts.mailing import addresses
from accounts.models import User, WebhookDelivery
from accounts.webhooks import sending
from accounts.webhooks import services as webhooks
from accounts.webhooks.sending import DELIVERIES
from core.api.idempotency import delete_old_answers
from core.audit.services import delete_expired
from core.background import on_database, run_in_background
from core.jobs import sweep_all


@shared_task
def forget_expired() -> None:
    """Delete expired sessions, and old idempotent answers, webhook deliveries and audit entries."""
    SessionStore.clear_expired()
    delete_old_answers()
    webhooks.forget_old()
    delete_expired()


@shared_task
def mail_forgotten(email: str, origin: str) -> None:
    people.mail_forgotten(email=email, origin=origin)


@shared_task
def mail_sign_up(email: str, origin: str) -> None:
    """Mail a sign-up link. An address that has an account gets a link to set a new password instead."""
    if not addresses.mail_sign_up(email=email, origin=origin):
        people.mail_forgotten(email=email, origin=origin)


@shared_task
def mail_changed(person_id: str, before: str) -> None:
    addresses.mail_changed(person=User.objects.get(pk=person_id), before=before)


@shared_task(name=DELIVERIES.task)
def deliver(delivery_id: str) -> None:
    delivery = DELIVERIES.claim(UUID(delivery_id), "webhook")
    if delivery is not None:
        run_in_background(_deliver(delivery))


async def _deliver(delivery: WebhookDelivery) -> None:
    outcome = await sending.attempt(delivery)
    await on_database(sending.report, delivery, outcome)


@shared_task(name="accounts.webhooks.tasks.sweep_webhooks")
def sweep_webhooks() -> None:
    """Sweep all jobs. Only a beat process of version 0.1 sends this task: it does not know `core.tasks.sweep_jobs`."""
    sweep_all()
