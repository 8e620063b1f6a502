"""The settings page of webhooks. A view reads the request and calls one service."""

from typing import Any
from uuid import UUID

from django import forms
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from accounts.middleware import SignedInRequest as Request
from accounts.models import Webhook, WebhookDelivery
from accounts.webhooks import services as webhooks
from accounts.webhooks.pages import listed
from llm.errors import NotFound, ProductError


class WebhookForm(forms.Form):
    url = forms.CharField(max_length=webhooks.MAX_URL)
    events = forms.MultipleChoiceField(choices=Webhook.Event.choices)


@never_cache
@login_required
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
    context: dict[str, Any] = {"form": form, "made": made, "webhooks": listed(request.user)}
    context |= {"section": "settings", "place": "webhooks"}
    return render(request, "accounts/webhooks.html", context, status=422 if form.is_bound else 200)


@login_required
@require_POST
def switch(request: Request, pk: UUID) -> HttpResponse:
    webhook = _own(request, pk)
    webhooks.update_webhook(user=request.user, webhook=webhook, fields={"enabled": not webhook.enabled})
    return redirect("settings:webhooks")


@login_required
@require_POST
def test(request: Request, pk: UUID) -> HttpResponse:
    webhooks.send_test(user=request.user, webhook=_own(request, pk))
    return redirect("settings:webhooks")


@login_required
@require_POST
def remove(request: Request, pk: UUID) -> HttpResponse:
    webhooks.delete_webhook(user=request.user, webhook=_own(request, pk))
    return redirect("settings:webhooks")


@login_required
@require_POST
def retry(request: Request, pk: UUID) -> HttpResponse:
    delivery = WebhookDelivery.objects.visible_to(request.user).select_related("webhook").filter(pk=pk).first()
    if delivery is None:
        raise NotFound("delivery")
    webhooks.retry_delivery(user=request.user, delivery=delivery)
    return redirect("settings:webhooks")


def _own(request: Request, pk: UUID) -> Webhook:
    webhook = Webhook.objects.visible_to(request.user).filter(pk=pk).first()
    if webhook is None:
        raise NotFound("webhook")
    return webhook
