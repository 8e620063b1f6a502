"""The settings page of webhooks. A view reads the request and calls one service."""

from typing import NamedTuple
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from accounts.access.sessions import SignedInRequest as Request
from accounts.models import User, Webhook, WebhookDelivery
from accounts.webhooks import services as webhooks
from core.errors import ProductError
from core.net.site import site_origin
from core.requests import get_or_404, with_row

DELIVERIES_PER_PAGE = 10  # deliveries shown per webhook


class ListedWebhook(NamedTuple):
    webhook: Webhook
    deliveries: list[WebhookDelivery]


class WebhookForm(forms.Form):
    url = forms.CharField(max_length=webhooks.MAX_URL)
    events = forms.MultipleChoiceField(choices=Webhook.Event.choices)


@never_cache
@require_http_methods(["GET", "POST"])
def page(request: Request) -> HttpResponse:
    """Show the webhooks of the person. A POST creates one. Its secret is shown only in this response."""
    form = WebhookForm(request.POST if request.method == "POST" else None)
    webhook = None
    if request.method == "POST" and form.is_valid():
        origin = site_origin(request)
        try:
            webhook = webhooks.create_webhook(
                user=request.user, origin=origin, url=form.cleaned_data["url"], events=form.cleaned_data["events"]
            )
            form = WebhookForm()
        except ProductError as error:
            form.add_error("url", str(error.sentence))
    rows = Webhook.objects.visible_to(request.user)
    listed = [ListedWebhook(row, list(row.deliveries.order_by("-id")[:DELIVERIES_PER_PAGE])) for row in rows]
    context = {"form": form, "made": webhook, "webhooks": listed, "section": "settings", "place": "webhooks"}
    return render(request, "accounts/webhooks.html", context, status=422 if form.is_bound else 200)


def _webhook(user: User, pk: UUID) -> Webhook:
    return get_or_404(Webhook.objects.visible_to(user), pk, "webhook")


def _delivery(user: User, pk: UUID) -> WebhookDelivery:
    return get_or_404(WebhookDelivery.objects.visible_to(user).select_related("webhook"), pk, "delivery")


@with_row(_webhook)
def toggle(request: Request, webhook: Webhook) -> HttpResponse:
    webhooks.update_webhook(user=request.user, webhook=webhook, fields={"enabled": not webhook.enabled})
    return redirect("settings:webhooks")


@with_row(_webhook)
def test(request: Request, webhook: Webhook) -> HttpResponse:
    webhooks.send_test(user=request.user, webhook=webhook)
    return redirect("settings:webhooks")


@with_row(_webhook)
def remove(request: Request, webhook: Webhook) -> HttpResponse:
    webhooks.delete_webhook(user=request.user, webhook=webhook)
    return redirect("settings:webhooks")


@with_row(_delivery)
def retry(request: Request, delivery: WebhookDelivery) -> HttpResponse:
    webhooks.retry_delivery(user=request.user, delivery=delivery)
    return redirect("settings:webhooks")
