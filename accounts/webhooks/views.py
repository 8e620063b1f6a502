"""The settings page of webhooks. A view reads the request and calls one service."""

from typing import Any, NamedTuple
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from accounts.access.sessions import SignedInRequest as Request
from accounts.models import Webhook, WebhookDelivery
from accounts.webhooks import services as webhooks
from core.errors import ProductError
from core.lookups import get_or_404

SHOWN = 10  # deliveries of each webhook


class Listed(NamedTuple):
    webhook: Webhook
    deliveries: list[WebhookDelivery]


class WebhookForm(forms.Form):
    url = forms.CharField(max_length=webhooks.MAX_URL)
    events = forms.MultipleChoiceField(choices=Webhook.Event.choices)


@never_cache
@require_http_methods(["GET", "POST"])
def page(request: Request) -> HttpResponse:
    """A POST makes a webhook and shows its secret, this once."""
    form, made = WebhookForm(request.POST if request.method == "POST" else None), None
    if request.method == "POST" and form.is_valid():
        origin = request.build_absolute_uri("/").rstrip("/")
        try:
            made = webhooks.create_webhook(user=request.user, origin=origin, **form.cleaned_data)
            form = WebhookForm()
        except ProductError as error:
            form.add_error("url", error.detail)
    rows = Webhook.objects.visible_to(request.user)
    listed = [Listed(webhook, list(webhook.deliveries.order_by("-id")[:SHOWN])) for webhook in rows]
    context: dict[str, Any] = {"form": form, "made": made, "webhooks": listed}
    context |= {"section": "settings", "place": "webhooks"}
    return render(request, "accounts/webhooks.html", context, status=422 if form.is_bound else 200)


@require_POST
def switch(request: Request, pk: UUID) -> HttpResponse:
    webhook = _own(request, pk)
    webhooks.update_webhook(user=request.user, webhook=webhook, fields={"enabled": not webhook.enabled})
    return redirect("settings:webhooks")


@require_POST
def test(request: Request, pk: UUID) -> HttpResponse:
    webhooks.send_test(user=request.user, webhook=_own(request, pk))
    return redirect("settings:webhooks")


@require_POST
def remove(request: Request, pk: UUID) -> HttpResponse:
    webhooks.delete_webhook(user=request.user, webhook=_own(request, pk))
    return redirect("settings:webhooks")


@require_POST
def retry(request: Request, pk: UUID) -> HttpResponse:
    rows = WebhookDelivery.objects.visible_to(request.user).select_related("webhook")
    delivery = get_or_404(rows, pk, "delivery")
    webhooks.retry_delivery(user=request.user, delivery=delivery)
    return redirect("settings:webhooks")


def _own(request: Request, pk: UUID) -> Webhook:
    return get_or_404(Webhook.objects.visible_to(request.user), pk, "webhook")
