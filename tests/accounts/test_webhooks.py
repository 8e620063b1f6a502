"""Webhooks: created by people and programs, signed, retried, given up; forbidden contents and addresses."""

import base64
import json
from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks
from pytest_django.fixtures import Settings

from accounts.models import User, Webhook, WebhookDelivery
from accounts.webhooks import sending as webhook_sending
from accounts.webhooks.sending import DELAYS, DELIVERIES, GIVE_UP_AFTER, LEASE, MAX_TRIES
from accounts.webhooks.services import emit
from tests.accounts.programs import Program
from tests.accounts.receiver import Receiver, deliver
from tests.accounts.webhooks import API, create_webhook, happened, is_signed_with, tried

pytestmark = pytest.mark.django_db


def test_the_signature_is_that_of_the_specifications_example() -> None:
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    signed = webhook_sending.signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_what_happened_is_told_with_ids_links_and_a_signature(program: Program, olga: User, receiver: Receiver) -> None:
    webhook = create_webhook(program, receiver.url)
    delivery = tried(happened(olga))
    assert (delivery.status, delivery.attempts, delivery.response_status) == ("done", 1, 204)
    call = receiver.received[0]
    assert is_signed_with(webhook["secret"], call)
    assert not is_signed_with("whsec_" + base64.b64encode(b"another").decode(), call)
    assert call.headers["webhook-id"] == str(delivery.event)
    assert abs(int(call.headers["webhook-timestamp"]) - timezone.now().timestamp()) < 60
    data = {"turn": "t1", "status": "done", "url": "http://testserver/api/v1/turns/t1/"}
    assert call.payload == {"type": "turn.finished", "timestamp": call.payload["timestamp"], "data": data}


def test_only_webhooks_of_that_person_and_event_that_are_on_are_told(program: Program, olga: User) -> None:
    create_webhook(program, "https://example.org/a", "file.ready")
    off = create_webhook(program, "https://example.org/b")
    program.ask("PATCH", f"{API}{off['id']}/", '{"enabled": false}')
    create_webhook(Program(User.objects.create_user("somebody"), "admin"), "https://example.org/c")
    with transaction.atomic():
        emit(owner_id=olga.pk, event="turn.finished", ids={}, paths={})
    assert not WebhookDelivery.objects.exists()
    assert happened(olga, "file.ready").webhook.url == "https://example.org/a"


def test_a_change_that_is_rolled_back_tells_nobody(
    program: Program, olga: User, receiver: Receiver, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    create_webhook(program, receiver.url)
    with django_capture_on_commit_callbacks() as callbacks, pytest.raises(RuntimeError), transaction.atomic():
        emit(owner_id=olga.pk, event="turn.finished", ids={}, paths={})
        raise RuntimeError
    assert not WebhookDelivery.objects.exists()
    assert not callbacks


def test_a_try_that_fails_is_repeated_later_each_time_until_the_last(
    program: Program, olga: User, receiver: Receiver
) -> None:
    create_webhook(program, receiver.url)
    receiver.answers = [500] * MAX_TRIES
    delivery = happened(olga)
    waits: list[float | None] = []
    for _ in range(MAX_TRIES):
        began = timezone.now()
        delivery = tried(delivery)
        waits.append((delivery.next_attempt - began).total_seconds() if delivery.next_attempt else None)
    assert waits[-1] is None
    assert all(wait and delay <= wait < delay * 1.2 + 5 for delay, wait in zip(DELAYS, waits[:-1], strict=True))
    assert (delivery.status, delivery.attempts, len(receiver.received)) == ("failed", MAX_TRIES, MAX_TRIES)
    assert len({call.headers["webhook-id"] for call in receiver.received}) == 1
    assert [entry["status"] for entry in delivery.log] == [500] * MAX_TRIES
    tried(delivery)
    assert len(receiver.received) == MAX_TRIES


def test_a_try_is_made_by_one_worker_and_taken_up_when_that_dies(
    program: Program, olga: User, receiver: Receiver
) -> None:
    create_webhook(program, receiver.url)
    delivery = happened(olga)
    assert DELIVERIES.to_hand_out() == [delivery.pk]
    assert DELIVERIES.claim(delivery.pk, "webhook") is not None  # and this worker dies
    deliver(delivery.pk)
    assert DELIVERIES.to_hand_out() == receiver.received == []
    WebhookDelivery.objects.update(next_attempt=timezone.now() - timedelta(seconds=1))
    assert DELIVERIES.to_hand_out() == [delivery.pk]
    deliver(delivery.pk)
    assert len(receiver.received) == 1
    assert timedelta(seconds=webhook_sending.TIMEOUT) < LEASE


def test_the_delivery_that_waits_longest_is_tried_first(program: Program, olga: User, receiver: Receiver) -> None:
    create_webhook(program, receiver.url)
    deliveries = [happened(olga) for _ in range(3)]
    for delivery, minutes in zip(deliveries, (2, 3, 1), strict=True):
        since = timezone.now() - timedelta(minutes=minutes)
        WebhookDelivery.objects.filter(pk=delivery.pk).update(next_attempt=since)
    assert DELIVERIES.to_hand_out() == [deliveries[1].pk, deliveries[0].pk, deliveries[2].pk]


def test_a_report_that_comes_too_late_is_dropped(program: Program, olga: User, receiver: Receiver) -> None:
    create_webhook(program, receiver.url)
    delivery = happened(olga)
    slow = DELIVERIES.claim(delivery.pk, "webhook")
    assert slow is not None
    assert tried(delivery).status == "done"
    webhook_sending.report(slow, webhook_sending.DeliveryAttempt(500, "", 1))
    assert WebhookDelivery.objects.get().status == "done"


def test_redirects_are_not_followed(program: Program, olga: User, receiver: Receiver) -> None:
    create_webhook(program, receiver.url)
    receiver.answers = [302]
    delivery = tried(happened(olga))
    assert delivery.status == "waiting"
    assert "redirect" in delivery.log[0]["detail"]
    assert len(receiver.received) == 1


def test_nothing_is_sent_to_addresses_that_are_not_public(
    program: Program, olga: User, receiver: Receiver, settings: Settings
) -> None:
    settings.WEBHOOK_ALLOW_PRIVATE = False
    for url, detail in (
        (receiver.url, "Port"),
        ("http://127.0.0.1/hook", "not on the public internet"),
        ("http://169.254.169.254/latest/meta-data/", "not on the public internet"),
        ("http://[::1]/", "not on the public internet"),
        ("http://localhost:8080/", "not on the public internet"),
    ):
        webhook = create_webhook(program, url)
        delivery = tried(happened(olga))
        assert (delivery.response_status, delivery.status) == (None, "waiting")
        assert detail in delivery.log[0]["detail"]
        program.ask("DELETE", f"{API}{webhook['id']}/")
    assert not receiver.received


def test_a_webhook_that_only_fails_is_switched_off_and_says_so(
    program: Program, olga: User, receiver: Receiver
) -> None:
    webhook = create_webhook(program, receiver.url)
    receiver.answers = [500, 204, 500, 500]
    first, url = happened(olga), f"{API}{webhook['id']}/"
    tried(first)
    assert program.ask("GET", url).json()["failing_since"] is not None
    tried(first)
    assert program.ask("GET", url).json()["failing_since"] is None
    second = happened(olga)
    tried(second)
    Webhook.objects.update(failing_since=timezone.now() - GIVE_UP_AFTER - timedelta(minutes=1))
    assert tried(second).status == "failed"
    state = program.ask("GET", url).json()
    assert not state["enabled"]
    assert "every try has failed" in state["note"]
    again = program.ask("PATCH", url, '{"enabled": true}').json()
    assert (again["enabled"], again["note"], again["failing_since"]) == (True, "", None)


def test_an_address_that_is_gone_is_told_nothing_more(program: Program, olga: User, receiver: Receiver) -> None:
    create_webhook(program, receiver.url)
    receiver.answers = [410]
    assert tried(happened(olga)).status == "failed"
    assert "410" in Webhook.objects.get().note.english
    emit(owner_id=olga.pk, event="turn.finished", ids={}, paths={})
    assert WebhookDelivery.objects.count() == 1


def test_the_payload_is_sent_as_it_was_signed_whatever_is_in_it(
    program: Program, olga: User, receiver: Receiver
) -> None:
    webhook = create_webhook(program, receiver.url)
    with transaction.atomic():
        emit(owner_id=olga.pk, event="turn.finished", ids={"code": "Đường “ü” \U0001f600"}, paths={})
    tried(WebhookDelivery.objects.get())
    assert is_signed_with(webhook["secret"], receiver.received[0])
    assert json.loads(receiver.received[0].body)["data"]["code"] == "Đường “ü” \U0001f600"
