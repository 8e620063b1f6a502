"""Celery tasks of webhooks. The row, not the broker, is the truth about a delivery."""

from uuid import UUID

from celery import shared_task

from accounts.models import WebhookDelivery
from accounts.webhooks import sending
from core.event_loop import carry, on_database
from core.jobs import enqueue


@shared_task
def deliver(delivery_id: str) -> None:
    delivery = sending.claim(UUID(delivery_id))
    if delivery is not None:
        carry(_deliver(delivery))


async def _deliver(delivery: WebhookDelivery) -> None:
    tried = await sending.attempt(delivery)
    await on_database(sending.report, delivery, tried)


@shared_task
def sweep_webhooks() -> None:
    """Runs every few seconds: what is due for another try, and what the broker or a dead worker lost."""
    for delivery_id in sending.due():
        enqueue("accounts.webhooks.tasks.deliver", delivery_id)
