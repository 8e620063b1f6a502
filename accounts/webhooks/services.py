"""Create, change and delete webhooks. Other packages report events to them with `emit`."""

import base64
import secrets
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.db import connection, transaction
from django.utils import timezone
from uuid_utils.compat import uuid7

from accounts.models import User
from accounts.models.webhook import Webhook, WebhookDelivery
from accounts.webhooks.sending import DELIVERIES, SECRET_PREFIX, UNSIGNED, switch_off
from core.audit.services import changes_by_name, record
from core.errors import ProductError
from core.net.url_safety import is_http
from core.permissions import require_right
from core.sentences import Sentence

MAX_WEBHOOKS = 20  # per person
MAX_URL = 500  # characters
KEPT_FOR = timedelta(days=30)
TEST = "webhook.test"
FIELDS = ("url", "events", "enabled")


@transaction.atomic
def create_webhook(*, user: User, url: str, events: Collection[str], origin: str, enabled: bool = True) -> Webhook:
    """Store a webhook with a new secret. `origin` is the scheme and host at which its owner uses this site.

    Raises `bad_webhook_url`, `unknown_event`, `no_event` and `too_many_webhooks` (409).
    """
    if Webhook.objects.visible_to(user).count() >= MAX_WEBHOOKS:
        sentence = Sentence(
            "You have {max_webhooks} webhooks, which is the maximum. Remove one first.", max_webhooks=MAX_WEBHOOKS
        )
        raise ProductError("too_many_webhooks", sentence, status=409)
    secret = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    webhook = Webhook.objects.create(
        owner=user, url=_url(url), events=_events(events), origin=origin, secret=secret, enabled=enabled
    )
    record(user=user, action="webhook.made", row=webhook, changes={"host": urlsplit(webhook.url).hostname or ""})
    return webhook


def update_webhook(*, user: User, webhook: Webhook, fields: Mapping[str, Any]) -> Webhook:
    """Change url, events or enabled. Raises `bad_webhook_url`, `unknown_event` and `no_event`."""
    changes = {name: fields[name] for name in FIELDS if name in fields}
    if "url" in changes:
        changes["url"] = _url(changes["url"])
    if "events" in changes:
        changes["events"] = _events(changes["events"])
    if changes.get("enabled"):
        changes |= {"note": "", "failing_since": None}
    with transaction.atomic():
        audited = changes_by_name(webhook, changes)
        if Webhook.objects.visible_to(user).filter(pk=webhook.pk).update(**changes) and audited:
            record(user=user, action="webhook.changed", row=webhook, changes=audited)
        if changes.get("enabled") is False:
            switch_off(webhook)
    return Webhook.objects.visible_to(user).get(pk=webhook.pk)


@transaction.atomic
def delete_webhook(*, user: User, webhook: Webhook) -> None:
    """Delete a webhook with its deliveries."""
    if Webhook.objects.visible_to(user).filter(pk=webhook.pk).delete()[0]:
        record(user=user, action="webhook.deleted", row=webhook)


@transaction.atomic
def stop_webhook(*, user: AbstractUser, webhook: Webhook, note: Sentence) -> None:
    """Switch off a webhook as an administrator. Raises `right_missing`."""
    require_right(user, "change", webhook)
    switch_off(webhook, note)
    record(user=user, action="webhook.switched_off", row=webhook, changes={"owner": str(webhook.owner_id)})


@transaction.atomic
def send_test(*, user: User, webhook: Webhook) -> WebhookDelivery:
    """Send a `webhook.test`. Raises `webhook_off` and `secret_lost` (409)."""
    _require_usable(webhook)
    return _store([webhook], TEST, {"webhook": str(webhook.pk)}, {})[0]


@transaction.atomic
def retry_delivery(*, user: User, delivery: WebhookDelivery) -> WebhookDelivery:
    """Try an ended delivery once more, at once. Raises `webhook_off`, `secret_lost` and `still_waiting` (409)."""
    _require_usable(delivery.webhook)
    ended = WebhookDelivery.objects.visible_to(user).exclude(status=WebhookDelivery.Status.WAITING)
    changed = ended.filter(pk=delivery.pk).update(status=WebhookDelivery.Status.WAITING, next_attempt=timezone.now())
    if not changed:
        sentence = "This delivery already waits for its next try, at “next_attempt”."
        raise ProductError("still_waiting", sentence, status=409)
    DELIVERIES.hand_over(delivery.pk)
    delivery.refresh_from_db()
    return delivery


def emit(*, owner_id: UUID, event: str, ids: Mapping[str, Any], paths: Mapping[str, str]) -> None:
    """Report an event to the webhooks of a person. Call it in the transaction that causes the event.

    `ids` and `paths` become members of the payload's `data`. `ids` holds ids, states, codes and sentences of the
    product, never texts of users. Each path becomes a URL.
    """
    with connection.cursor() as cursor:  # a cheap query: every answer runs it, and most people have no webhook
        cursor.execute("SELECT FROM accounts_webhook WHERE owner_id = %s AND enabled LIMIT 1", [owner_id])
        if not cursor.rowcount:
            return
    hooks = Webhook.objects.filter(owner_id=owner_id, owner__is_active=True, enabled=True, events__contains=[event])
    if subscribed := list(hooks):
        _store(subscribed, event, ids, paths)


def forget_old() -> None:
    """Delete deliveries that are older than `KEPT_FOR`."""
    WebhookDelivery.objects.filter(created__lt=timezone.now() - KEPT_FOR).delete()


def _store(hooks: list[Webhook], type_: str, ids: Mapping[str, Any], paths: Mapping[str, str]) -> list[WebhookDelivery]:
    now = timezone.now()
    event = uuid7()
    head = {"type": type_, "timestamp": now.isoformat()}
    rows = [
        WebhookDelivery(
            webhook=hook,
            event=event,
            type=type_,
            payload={**head, "data": {**ids, **{name: hook.origin + path for name, path in paths.items()}}},
            next_attempt=now,
        )
        for hook in hooks
    ]
    WebhookDelivery.objects.bulk_create(rows)
    for row in rows:
        DELIVERIES.hand_over(row.pk)
    return rows


def _require_usable(webhook: Webhook) -> None:
    if not webhook.enabled:
        raise ProductError("webhook_off", "This webhook is switched off. Switch it on first.", status=409)
    if webhook.secret_lost:
        raise ProductError("secret_lost", UNSIGNED, status=409)


def _url(url: str) -> str:
    url = url.strip()
    if not is_http(url) or len(url) > MAX_URL or "@" in urlsplit(url).netloc:
        sentence = Sentence(
            "Enter an address that begins with http:// or https:// and a host, at most {max_url} characters.",
            max_url=MAX_URL,
        )
        raise ProductError("bad_webhook_url", sentence)
    return url


def _events(names: Collection[str]) -> list[str]:
    """Return the events sorted in the order of `Webhook.Event`. Raises `unknown_event` and `no_event`."""
    events = [str(event) for event in Webhook.Event]
    unknown = sorted(set(names) - set(events))
    if unknown:
        raise ProductError(
            "unknown_event",
            Sentence(
                "There is no event “{unknown}”. The events are {known}.", unknown=unknown[0], known=", ".join(events)
            ),
        )
    if not names:
        raise ProductError("no_event", "Choose at least one event.")
    return [event for event in events if event in names]
