"""Celery tasks of webhooks. The row, not the broker, is the truth about a delivery."""

import logging
from collections.abc import Iterable
from uuid import UUID

from celery import shared_task
from kombu.exceptions import KombuError, OperationalError
from redis.exceptions import RedisError

from accounts.webhooks import sending as webhook_sending
from llm import runtime

BROKER_ERRORS = (KombuError, OperationalError, RedisError, OSError)

logger = logging.getLogger(__name__)


@shared_task
def deliver(delivery_id: str) -> None:
    delivery = webhook_sending.claim(UUID(delivery_id))
    if delivery is not None:
        webhook_sending.report(delivery, runtime.submit(webhook_sending.attempt(delivery)).result())


@shared_task
def sweep_webhooks() -> None:
    """Runs every few seconds: what is due for another try, and what the broker or a dead worker lost."""
    enqueue(webhook_sending.due())


def enqueue(deliveries: Iterable[UUID]) -> None:
    """A broker that is away is no error: the sweeper finds the rows."""
    try:
        for delivery_id in deliveries:
            deliver.apply_async((str(delivery_id),), retry=False)
    except BROKER_ERRORS:
        logger.warning("the broker is away; deliveries of webhooks wait for the sweeper")
