"""What the settings page of webhooks shows."""

from typing import NamedTuple

from accounts.models import User, Webhook, WebhookDelivery

SHOWN = 10  # deliveries of each


class Listed(NamedTuple):
    webhook: Webhook
    deliveries: list[WebhookDelivery]


def listed(user: User) -> list[Listed]:
    return [
        Listed(webhook, list(webhook.deliveries.order_by("-id")[:SHOWN]))
        for webhook in Webhook.objects.visible_to(user)
    ]
