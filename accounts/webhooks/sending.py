"""Sends what waits for a webhook, signed as the Standard Webhooks specification 1.0 says.

A try is claimed by a conditional update that also says when somebody else may take it up; so two workers do not send
the same try, and one that dies loses nothing. A receiver may still see an event twice, when its answer was lost: it
knows repeats by `webhook-id`.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import random
import time
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from ipaddress import ip_network
from typing import Any
from uuid import UUID

import httpx2
from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from accounts.models.webhook import Webhook, WebhookDelivery
from core.errors import ProductError
from core.net.fetch import CheckedTransport
from core.net.url_safety import FetchRefused, Guard
from core.sentences import NO_SENTENCE, Sentence

SECRET_PREFIX = "whsec_"  # noqa: S105 - the specification's marker of a secret, not a secret
TIMEOUT = 10.0  # seconds for one try, all of it
LEASE = timedelta(seconds=60)  # from when on a try that nobody has reported is taken for lost
DELAYS = (5.0, 30.0, 120.0, 600.0, 3_600.0, 21_600.0, 21_600.0)  # seconds after each try but the last
MAX_TRIES = len(DELAYS) + 1
JITTER = 0.2  # of a delay at most, added: receivers that were away are not met by everything at once
GIVE_UP_AFTER = timedelta(days=5)  # of nothing but failures, then the webhook is switched off
LOG_ENTRIES = 20
AT_ONCE = 200  # deliveries that one sweep hands out
GONE = 410

SWITCHED_OFF = "Switched off: every try has failed since {since}. Mend what receives them, then switch it on again."
UNSIGNED = (
    "Nothing was sent: the secret to sign it with cannot be read, since the server's key (SECRET_KEY) is another now. "
    "Remove this webhook and make it again, or have an administrator add the old key to ENCRYPTION_KEYS."
)
SAID_GONE = "Switched off: the address answered 410, that it is gone. Enter another, then switch it on again."

_random = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Tried:
    """`status` is None when there was no answer; `detail` says why, or is empty. `code` is that of a try not made."""

    status: int | None
    detail: str
    ms: int
    code: str = ""

    @property
    def fine(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """`v1,` and the base64 of the HMAC-SHA256 of id, timestamp (Unix, seconds) and body, joined by dots.

    Raises `secret_lost` for an empty secret: anybody could make what is signed with it.
    """
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    if not key:
        raise ProductError("secret_lost", UNSIGNED, status=409)
    signed = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(signed).decode()


def claim(delivery_id: UUID) -> WebhookDelivery | None:
    """The delivery, ours to try once; None when it is not due, done with, or its webhook is off."""
    now = timezone.now()
    due = WebhookDelivery.objects.filter(status=WebhookDelivery.Status.WAITING, next_attempt__lte=now)
    mine = due.filter(pk=delivery_id, webhook__enabled=True)
    if not mine.update(attempts=F("attempts") + 1, next_attempt=now + LEASE):
        return None
    return WebhookDelivery.objects.select_related("webhook").get(pk=delivery_id)


async def attempt(delivery: WebhookDelivery) -> Tried:
    """One POST. Redirects are not followed, and the answer's body is not read."""
    body = json.dumps(delivery.payload, ensure_ascii=False, separators=(",", ":")).encode()
    began = time.monotonic()
    now, message_id = int(time.time()), str(delivery.event)
    status, detail, code = None, "", ""
    try:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Glasshouse-Webhooks/1",
            "webhook-id": message_id,
            "webhook-timestamp": str(now),
            "webhook-signature": signature(delivery.webhook.secret, message_id, now, body),
        }
        status = await _posted(delivery.webhook.url, headers, body)
    except ProductError as error:
        detail, code = error.sentence.dump(), error.code
    except FetchRefused as refusal:
        detail = str(refusal)
    except (TimeoutError, httpx2.TimeoutException):
        detail = f"There was no answer within {TIMEOUT:g} seconds."
    except (httpx2.HTTPError, httpx2.InvalidURL):
        detail = "The address cannot be reached, its certificate is not valid, or its answer is broken."
    if status is not None and 300 <= status < 400:
        detail = "It answered with a redirect, which is not followed. Enter the address it leads to."
    return Tried(status, detail, round((time.monotonic() - began) * 1_000), code)


async def _posted(url: str, headers: dict[str, str], body: bytes) -> int:
    client = httpx2.AsyncClient(transport=CheckedTransport(_guard()), timeout=TIMEOUT, trust_env=False)
    async with asyncio.timeout(TIMEOUT), client:
        response = await client.send(client.build_request("POST", url, headers=headers, content=body), stream=True)
        await response.aclose()
        return int(response.status_code)


def _guard() -> Guard:
    if not settings.WEBHOOK_ALLOW_PRIVATE:
        return Guard()
    everywhere = (ip_network("0.0.0.0/0"), ip_network("::/0"))
    return Guard(ports=frozenset(range(1, 65_536)), allowed_networks=everywhere)


@transaction.atomic
def report(delivery: WebhookDelivery, tried: Tried) -> None:
    """What the try of `claim` came to. A report that comes so late that somebody else has tried is dropped."""
    now = timezone.now()
    entry = {"at": now.isoformat(timespec="seconds"), **asdict(tried)}
    fields: dict[str, Any] = {"response_status": tried.status, "log": [*delivery.log, entry][-LOG_ENTRIES:]}
    if tried.fine:
        fields |= {"status": WebhookDelivery.Status.DONE, "next_attempt": None}
    elif delivery.attempts >= MAX_TRIES:
        fields |= {"status": WebhookDelivery.Status.FAILED, "next_attempt": None}
    else:
        fields["next_attempt"] = now + _delay(delivery.attempts)
    ours = WebhookDelivery.objects.filter(
        pk=delivery.pk, attempts=delivery.attempts, status=WebhookDelivery.Status.WAITING
    )
    if ours.update(**fields):
        _weigh(delivery.webhook, tried, now)


def _delay(attempts: int) -> timedelta:
    seconds = DELAYS[attempts - 1]
    return timedelta(seconds=seconds + _random.uniform(0, JITTER * seconds))


def _weigh(webhook: Webhook, tried: Tried, now: datetime) -> None:
    """What a try says about the webhook itself."""
    rows = Webhook.objects.filter(pk=webhook.pk)
    if tried.fine:
        rows.exclude(failing_since=None).update(failing_since=None)
        return
    rows.filter(failing_since=None).update(failing_since=now)
    since = rows.values_list("failing_since", flat=True).get()
    if tried.status == GONE:
        switch_off(webhook, Sentence(SAID_GONE))
    elif since is not None and since < now - GIVE_UP_AFTER:
        switch_off(webhook, Sentence(SWITCHED_OFF, since=f"{since:%Y-%m-%d %H:%M} UTC"))


def switch_off(webhook: Webhook, note: Sentence = NO_SENTENCE) -> None:
    """What waits for it is given up: it would be old news when somebody switches it on again."""
    Webhook.objects.filter(pk=webhook.pk).update(enabled=False, note=note)
    waiting = WebhookDelivery.objects.filter(webhook=webhook, status=WebhookDelivery.Status.WAITING)
    waiting.update(status=WebhookDelivery.Status.FAILED, next_attempt=None)


def due() -> list[UUID]:
    """The deliveries to try now, those that have waited longest first."""
    rows = WebhookDelivery.objects.filter(
        status=WebhookDelivery.Status.WAITING, next_attempt__lte=timezone.now(), webhook__enabled=True
    )
    return list(rows.order_by("next_attempt").values_list("pk", flat=True)[:AT_ONCE])
