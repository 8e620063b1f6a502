"""Show webhooks in the admin: their owners, their state, and the outcome of each delivery attempt.

An address may contain a secret, so only its host is shown. Payloads are reduced to their ids.
"""

from typing import Any, cast
from urllib.parse import urlsplit

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounts.models import User, Webhook, WebhookDelivery
from accounts.webhooks import services as webhooks
from accounts.webhooks.sending import UNSIGNED
from core.admin import Confirmation, ReadOnlyAdmin, RecordAdmin, acting_user, confirmation_button, display
from core.sentences import Sentence

BY_ADMIN = gettext_noop("Switched off by an administrator.")


@admin.register(Webhook)
class WebhookAdmin(ReadOnlyAdmin):
    empty_words = "No webhooks yet. People add them in their settings."
    list_display = ("created", "owner", "host", "event_names", "enabled", "failing_since")
    list_select_related = ("owner",)
    list_filter = ("enabled",)
    search_fields = ("=id", "=owner__username")
    fields = ("id", "owner", "host", "event_names", "enabled", "secret_state", "note", "failing_since", "created")
    actions_detail: Any = ("switch_off",)
    show_full_result_count = False

    def has_switch_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return acting_user(request).has_perm("accounts.change_webhook")

    @display(description="Host")
    def host(self, webhook: Webhook) -> str:
        return urlsplit(webhook.url).hostname or ""

    @display(description="Secret")
    def secret_state(self, webhook: Webhook) -> str:
        return str(Sentence(UNSIGNED)) if webhook.secret_lost else _("stored")

    @display(description="Events")
    def event_names(self, webhook: Webhook) -> str:
        return ", ".join(webhook.events)

    @confirmation_button(
        "Switch off",
        icon="power_settings_new",
        permission="switch",
        ask="Switch this webhook off?",
        explain="Waiting deliveries are given up. The owner can switch it on again.",
    )
    def switch_off(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        webhook = self.row(request, object_id)
        webhooks.stop_webhook(user=acting_user(request), webhook=webhook, note=Sentence(BY_ADMIN))
        return self.back(request, webhook, Sentence("The webhook is switched off."))


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(RecordAdmin):
    empty_words = "Nothing was delivered yet."
    list_display = ("created", "person", "host", "type", "status_label", "attempts", "response_status")
    list_select_related = ("webhook__owner",)
    list_filter = ("status", "type")
    search_fields = ("=id", "=event", "=webhook__id", "=webhook__owner__username")
    search_help_text = "The id of a delivery, an event or a webhook, or a user name"
    fields = (
        *("id", "event", "webhook", "person", "host", "type", "ids", "status_label", "attempts", "next_attempt"),
        *("response_status", "tries", "created"),
    )
    actions_detail: Any = ("retry",)

    def has_retry_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return acting_user(request).has_perm("accounts.change_webhookdelivery")

    @display(description="Owner")
    def person(self, delivery: WebhookDelivery) -> str:
        return str(delivery.webhook.owner)

    @display(description="Host")
    def host(self, delivery: WebhookDelivery) -> str:
        return urlsplit(delivery.webhook.url).hostname or ""

    @display(description="About")
    def ids(self, delivery: WebhookDelivery) -> str:
        data = delivery.payload.get("data", {})
        matching = {name: str(Sentence(name)) for name in data if name not in ("url", "page")}
        return ", ".join(f"{words} {data[name]}" for name, words in matching.items())

    @display(description="Status", ordering="status", label={"waiting": "info", "done": "success", "failed": "danger"})
    def status_label(self, delivery: WebhookDelivery) -> str:
        return delivery.status

    @display(description="Tries")
    def tries(self, delivery: WebhookDelivery) -> SafeString:
        lines = [
            (
                attempt["at"],
                _("no answer") if attempt["status"] is None else attempt["status"],
                attempt["ms"],
                str(Sentence.load(attempt["detail"])),
            )
            for attempt in delivery.log
        ]
        return format_html_join("", "<p>{}: {}, {} ms. {}</p>", lines)

    @confirmation_button(
        "Try again",
        icon="refresh",
        permission="retry",
        ask="Deliver this once more?",
        explain="The same event is sent again at once, with the same id.",
    )
    def retry(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        delivery = self.row(request, object_id)
        webhooks.retry_delivery(user=cast("User", delivery.webhook.owner), delivery=delivery)
        self.log_change(request, delivery, gettext_noop("Tried again."))
        return self.back(request, delivery, Sentence("It is tried again."))
