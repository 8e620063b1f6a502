"""Webhooks as programs, people and administrators handle them."""

import base64
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import User, Webhook, WebhookDelivery
from accounts.tasks import forget_expired
from tests.accounts.programs import Program
from tests.accounts.receiver import Receiver, deliver
from tests.accounts.webhooks import API, create_webhook, happened, tried

pytestmark = pytest.mark.django_db

PAGE = reverse("settings:webhooks")


def test_a_delivery_is_listed_and_repeated_on_request(program: Program, olga: User, receiver: Receiver) -> None:
    webhook = create_webhook(program, receiver.url)
    other = create_webhook(program, "https://example.org/x", "run.waiting")
    delivery = happened(olga)
    waiting = program.post(f"{API}deliveries/{delivery.pk}/retry/", {})
    assert (waiting.status_code, waiting.json()["code"]) == (409, "still_waiting")
    tried(delivery)
    listed = program.ask("GET", f"{API}deliveries/?webhook={webhook['id']}").json()["results"]
    assert [(each["id"], each["status"]) for each in listed] == [(str(delivery.pk), "done")]
    assert program.ask("GET", f"{API}deliveries/?webhook={other['id']}").json()["results"] == []
    assert program.ask("GET", f"{API}deliveries/?webhook=nonsense").status_code == 404
    assert program.post(f"{API}deliveries/{delivery.pk}/retry/", {}).status_code == 202
    deliver(delivery.pk)
    assert len({call.headers["webhook-id"] for call in receiver.received}) == 1
    assert len(receiver.received) == 2


def test_a_test_is_sent_even_without_that_event(program: Program, receiver: Receiver) -> None:
    webhook = create_webhook(program, receiver.url, "run.waiting")
    sent = program.post(f"{API}{webhook['id']}/test/", {})
    assert sent.status_code == 202
    deliver(sent.json()["id"])
    assert receiver.of("webhook.test")[0].payload["data"] == {"webhook": webhook["id"]}


def test_the_secret_is_shown_once_and_stored_encrypted(program: Program) -> None:
    webhook = create_webhook(program, "https://example.org/hook")
    assert len(base64.b64decode(webhook["secret"].removeprefix("whsec_"))) == 32
    for answer in (program.ask("GET", f"{API}{webhook['id']}/"), program.ask("GET", API)):
        assert "secret" not in answer.content.decode()
    with connection.cursor() as cursor:
        cursor.execute("SELECT secret FROM accounts_webhook")
        assert webhook["secret"] not in cursor.fetchone()[0]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"url": "ftp://example.org", "events": ["file.ready"]}, "bad_webhook_url"),
        ({"url": "https://user:word@example.org", "events": ["file.ready"]}, "bad_webhook_url"),
        ({"url": "https://", "events": ["file.ready"]}, "bad_webhook_url"),
        ({"url": "https://example.org", "events": []}, "invalid"),
        ({"url": "https://example.org", "events": ["turn.started"]}, "invalid"),
    ],
)
def test_a_webhook_that_will_not_do_is_refused(program: Program, body: Any, code: str) -> None:
    refused = program.post(API, body)
    assert (refused.status_code, refused.json()["code"]) == (400, code)
    assert not Webhook.objects.exists()


def test_there_is_an_end_to_how_many_a_person_has(program: Program, olga: User) -> None:
    for number in range(20):
        create_webhook(program, f"https://example.org/{number}")
    refused = program.post(API, {"url": "https://example.org/more", "events": ["file.ready"]})
    assert (refused.status_code, refused.json()["code"]) == (409, "too_many_webhooks")


def test_a_token_without_the_scope_admin_makes_none(olga: User) -> None:
    refused = Program(olga, "chat").post(API, {"url": "https://example.org", "events": ["file.ready"]})
    assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")


def test_old_deliveries_are_forgotten(program: Program, olga: User) -> None:
    create_webhook(program, "https://example.org/hook")
    old, new = happened(olga), happened(olga)
    WebhookDelivery.objects.filter(pk=old.pk).update(created=timezone.now() - timedelta(days=31))
    forget_expired()
    assert list(WebhookDelivery.objects.values_list("pk", flat=True)) == [new.pk]


def test_the_page_makes_tests_switches_and_removes_webhooks(client: Client, olga: User, receiver: Receiver) -> None:
    client.force_login(olga)
    shown = client.post(PAGE, {"url": receiver.url, "events": ["file.ready"]})
    webhook = Webhook.objects.get()
    assert webhook.secret in shown.content.decode()
    assert webhook.secret not in client.get(PAGE).content.decode()
    client.post(reverse("settings:webhook_test", args=[webhook.pk]))
    delivery = tried(WebhookDelivery.objects.get())
    assert "webhook.test" in client.get(PAGE).content.decode()
    client.post(reverse("settings:webhook_retry", args=[delivery.pk]))
    assert WebhookDelivery.objects.get().status == "waiting"
    client.post(reverse("settings:webhook_switch", args=[webhook.pk]))
    assert WebhookDelivery.objects.get().status == "failed"
    assert client.post(reverse("settings:webhook_test", args=[webhook.pk])).status_code == 409
    client.post(reverse("settings:webhook_remove", args=[webhook.pk]))
    assert not Webhook.objects.exists()


def test_the_page_says_what_is_wrong_with_an_address(client: Client, olga: User) -> None:
    client.force_login(olga)
    refused = client.post(PAGE, {"url": "gopher://example.org", "events": ["file.ready"]})
    assert refused.status_code == 422
    assert "http:// or https://" in refused.content.decode()


def test_the_admin_shows_hosts_ids_and_tries_and_switches_off(
    admin_client: Client, program: Program, olga: User, receiver: Receiver
) -> None:
    webhook = create_webhook(program, receiver.url + "very-secret-path")
    receiver.answers = [503]
    delivery = tried(happened(olga))
    page = admin_client.get(reverse("admin:accounts_webhookdelivery_change", args=[delivery.pk])).content.decode()
    assert ": 503, " in page
    assert "turn t1" in page
    assert "very-secret-path" not in page
    rows = admin_client.get(reverse("admin:accounts_webhook_change", args=[webhook["id"]])).content.decode()
    assert "127.0.0.1" in rows
    assert webhook["secret"] not in rows + page
    assert "very-secret-path" not in rows
