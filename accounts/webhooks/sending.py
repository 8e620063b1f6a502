"""Send waiting deliveries to webhooks, signed according to the Standard Webhooks specification 1.0.

Each try claims the delivery (`core.jobs`). The claim sets `next_attempt` to the time when another worker may try. So
two workers never send the same try, and a worker that dies loses nothing. A receiver may get an event twice if its
answer was lost. It recognises the repeat by `webhook-id`.
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

import httpx2
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts.models.webhook import Webhook, WebhookDelivery
from core.errors import ProductError
from core.jobs import NO_ROWS, JobKind
from core.net.fetch import CheckedTransport
from core.net.url_safety import FetchRefused, Guard
from core.sentences import NO_SENTENCE, Sentence

SECRET_PREFIX = "whsec_"  # noqa: S105 - the specification's marker of a secret, not a secret
TIMEOUT = 10.0  # seconds for a whole try
LEASE = timedelta(seconds=60)  # a try without a report counts as lost after this time
DELAYS = (5.0, 30.0, 120.0, 600.0, 3_600.0, 21_600.0, 21_600.0)  # seconds after each try but the last
MAX_TRIES = len(DELAYS) + 1
JITTER = 0.2  # maximum share added to a delay, so that a receiver that was down does not get all deliveries at once
GIVE_UP_AFTER = timedelta(days=5)  # after this time with failed tries only, the webhook is switched off
LOG_ENTRIES = 20
DELIVERIES_PER_SWEEP = 200  # deliveries per sweep
HTTP_GONE = 410

SWITCHED_OFF = "Switched off: every try has failed since {since}. Mend what receives them, then switch it on again."
UNSIGNED = (
    "Nothing was sent: the secret to sign it with cannot be read, since the server's key (SECRET_KEY) is another now. "
    "Remove this webhook and create it again, or have an administrator add the old key to ENCRYPTION_KEYS."
)
ADDRESS_GONE = "Switched off: the address answered 410, that it is gone. Enter another, then switch it on again."

# `next_attempt` is a lease. Once it is over, the delivery is due: after a pause, or because the worker was lost.
DELIVERIES = JobKind(
    model=WebhookDelivery,
    task="accounts.webhooks.tasks.deliver",
    waiting=NO_ROWS,
    running=Q(status=WebhookDelivery.Status.WAITING),
    resumable=Q(status=WebhookDelivery.Status.WAITING, webhook__in=Webhook.objects.filter(enabled=True)),
    heartbeat_column="next_attempt",
    lease=LEASE,
    stale_after=timedelta(0),
    attempt_column="attempts",
    batch=DELIVERIES_PER_SWEEP,
)

_random = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """The outcome of one try. `status` is None without an answer; then `detail` says why, as a dumped sentence.

    `code` is the error that prevented the try; it is empty if the request was sent. `ms` is the duration.
    """

    status: int | None
    detail: str
    ms: int
    code: str = ""

    @property
    def succeeded(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of the Standard Webhooks specification, version 1.

    It is `v1,` and the base64 of the HMAC-SHA256 of id, timestamp (Unix, seconds) and body, joined by dots. Raises
    `secret_lost` for an empty secret, since anybody could sign with it.
    """
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    if not key:
        raise ProductError("secret_lost", UNSIGNED, status=409)
    signed = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(signed).decode()


async def attempt(delivery: WebhookDelivery) -> DeliveryAttempt:
    """Send a delivery by one POST. Redirects are not followed, and the answer's body is not read."""
    body = json.dumps(delivery.payload, ensure_ascii=False, separators=(",", ":")).encode()
    began = time.monotonic()
    now = int(time.time())
    message_id = str(delivery.event)
    status: int | None = None
    detail = code = ""
    try:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Glasshouse-Webhooks/1",
            "webhook-id": message_id,
            "webhook-timestamp": str(now),
            "webhook-signature": signature(delivery.webhook.secret, message_id, now, body),
        }
        status = await _post(delivery.webhook.url, headers, body)
    except ProductError as error:
        detail = error.sentence.dump()
        code = error.code
    except FetchRefused as refusal:
        detail = str(refusal)
    except (TimeoutError, httpx2.TimeoutException):
        detail = f"The address did not answer within {TIMEOUT:g} seconds."
    except (httpx2.HTTPError, httpx2.InvalidURL):
        detail = "The address cannot be reached, its certificate is not valid, or its answer is broken."
    if status is not None and 300 <= status < 400:
        detail = "The address answered with a redirect, which is not followed. Enter the target of the redirect."
    return DeliveryAttempt(status, detail, round((time.monotonic() - began) * 1_000), code)


async def _post(url: str, headers: dict[str, str], body: bytes) -> int:
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
def report(delivery: WebhookDelivery, outcome: DeliveryAttempt) -> None:
    """Store the outcome of a claimed try. A report that comes after the next claim is dropped."""
    now = timezone.now()
    entry = {"at": now.isoformat(timespec="seconds"), **asdict(outcome)}
    status = WebhookDelivery.Status.WAITING
    next_attempt = None
    if outcome.succeeded:
        status = WebhookDelivery.Status.DONE
    elif delivery.attempts >= MAX_TRIES:
        status = WebhookDelivery.Status.FAILED
    else:
        next_attempt = now + _delay(delivery.attempts)
    log = [*delivery.log, entry][-LOG_ENTRIES:]
    row = DELIVERIES.claimed(delivery)
    if row.update(status=status, next_attempt=next_attempt, response_status=outcome.status, log=log):
        _note_outcome(delivery.webhook, outcome, now)


def _delay(attempts: int) -> timedelta:
    seconds = DELAYS[attempts - 1]
    return timedelta(seconds=seconds + _random.uniform(0, JITTER * seconds))


def _note_outcome(webhook: Webhook, outcome: DeliveryAttempt, now: datetime) -> None:
    """Store the time since which all tries of the webhook have failed. Switch it off after `GIVE_UP_AFTER`."""
    rows = Webhook.objects.filter(pk=webhook.pk)
    if outcome.succeeded:
        rows.exclude(failing_since=None).update(failing_since=None)
        return
    rows.filter(failing_since=None).update(failing_since=now)
    since = rows.values_list("failing_since", flat=True).get()
    if outcome.status == HTTP_GONE:
        switch_off(webhook, Sentence(ADDRESS_GONE))
    elif since is not None and since < now - GIVE_UP_AFTER:
        switch_off(webhook, Sentence(SWITCHED_OFF, since=f"{since:%Y-%m-%d %H:%M} UTC"))


def switch_off(webhook: Webhook, note: Sentence = NO_SENTENCE) -> None:
    """Switch a webhook off and give up its waiting deliveries. They would be outdated once it is on again."""
    Webhook.objects.filter(pk=webhook.pk).update(enabled=False, note=note)
    waiting = WebhookDelivery.objects.filter(webhook=webhook, status=WebhookDelivery.Status.WAITING)
    waiting.update(status=WebhookDelivery.Status.FAILED, next_attempt=None)
