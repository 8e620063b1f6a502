"""Steps for webhooks: a program creates them, and deliveries are tried."""

import base64
import hashlib
import hmac
from typing import Any

from django.db import transaction
from django.utils import timezone

from accounts.models import User, WebhookDelivery
from accounts.webhooks.services import emit
from tests.accounts.programs import Program
from tests.accounts.receiver import Received, deliver

API = "/api/v1/webhooks/"


def create_webhook(program: Program, url: str, *events: str) -> Any:
    answer = program.post(API, {"url": url, "events": list(events) or ["turn.finished"]})
    assert answer.status_code == 201, answer.content
    return answer.json()


def happened(user: User, event: str = "turn.finished") -> WebhookDelivery:
    with transaction.atomic():
        emit(owner_id=user.pk, event=event, ids={"turn": "t1", "status": "done"}, paths={"url": "/api/v1/turns/t1/"})
    return WebhookDelivery.objects.latest("id")


def tried(delivery: WebhookDelivery) -> WebhookDelivery:
    """Try a delivery now, however long it should wait."""
    rows = WebhookDelivery.objects.filter(pk=delivery.pk)
    rows.filter(status="waiting").update(next_attempt=timezone.now())
    deliver(delivery.pk)
    return rows.get()


def is_signed_with(secret: str, call: Received) -> bool:
    """As a receiver checks it, in the words of the Standard Webhooks specification."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    content = f"{call.headers['webhook-id']}.{call.headers['webhook-timestamp']}.".encode() + call.body
    expected = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return f"v1,{expected}" in call.headers["webhook-signature"].split(" ")
