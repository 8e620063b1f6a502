"""`/api/v1/webhooks/`: addresses that receive events, and the deliveries to them."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from accounts.access.api_views import ScopedView
from accounts.models import Webhook, WebhookDelivery
from accounts.webhooks import services as webhooks
from core.api.fields import SentenceField, StrictSerializer, validate
from core.api.idempotency import ShownOnce
from core.api.pagination import NewestFirst
from core.net.site import site_origin
from core.requests import identifier


class WebhookSerializer(StrictSerializer, serializers.ModelSerializer[Webhook]):
    events = serializers.ListField(
        child=serializers.ChoiceField(choices=Webhook.Event.choices), allow_empty=False, max_length=20
    )

    class Meta:
        model = Webhook
        fields: ClassVar = ["id", "url", "events", "enabled", "note", "failing_since", "created"]
        read_only_fields: ClassVar = ["id", "note", "failing_since", "created"]
        extra_kwargs: ClassVar = {
            "url": {"help_text": "Begins with http:// or https://. Redirects are not followed."},
            "note": {"help_text": "The reason if the product switched it off; empty otherwise."},
            "failing_since": {"help_text": "The time of the first failed try since the last success."},
        }


class NewWebhookSerializer(WebhookSerializer):
    secret = serializers.CharField(
        read_only=True,
        allow_null=True,
        help_text=(
            "The key of the signatures. Shown only in this response; null in a repeat with the same Idempotency-Key."
        ),
    )
    left_out = serializers.CharField(read_only=True, help_text="Why `secret` is null; empty otherwise.")

    class Meta(WebhookSerializer.Meta):
        fields: ClassVar = [*WebhookSerializer.Meta.fields, "secret", "left_out"]


class TrySerializer(StrictSerializer):
    at = serializers.DateTimeField()
    status = serializers.IntegerField(allow_null=True, help_text="Null without a response.")
    detail = SentenceField()
    code = serializers.CharField(default="", help_text="Why nothing was sent, such as `secret_lost`; empty otherwise.")
    ms = serializers.IntegerField()


class WebhookDeliverySerializer(serializers.ModelSerializer[WebhookDelivery]):
    payload = serializers.DictField()
    log = TrySerializer(many=True)

    class Meta:
        model = WebhookDelivery
        fields: ClassVar = [
            *("id", "webhook", "event", "type", "payload", "status", "attempts", "next_attempt", "response_status"),
            *("log", "created"),
        ]
        read_only_fields: ClassVar = fields
        extra_kwargs: ClassVar = {"event": {"help_text": "The `webhook-id` that it is sent with."}}


class WebhookViewSet(ScopedView, viewsets.ModelViewSet[Webhook]):
    scope = "admin"
    serializer_class = WebhookSerializer
    pagination_class = NewestFirst
    queryset = Webhook.objects.none()
    http_method_names = ("get", "post", "patch", "delete", "head", "options")

    def get_queryset(self) -> QuerySet[Webhook]:
        return Webhook.objects.visible_to(self.person)

    @extend_schema(request=WebhookSerializer, responses={201: NewWebhookSerializer})
    def create(self, request: Request) -> Response:
        """Create a webhook. Keep the `secret` of the response: it verifies that a delivery comes from this server.

        The response shows the secret once. A repeat with the same `Idempotency-Key` has null instead, and names it in
        `left_out`.
        """
        origin = site_origin(request)
        fields = validate(WebhookSerializer, request)
        webhook = webhooks.create_webhook(
            user=self.person,
            origin=origin,
            url=fields["url"],
            events=fields["events"],
            enabled=fields.get("enabled", True),
        )
        shown = {**WebhookSerializer(webhook).data, "secret": webhook.secret}
        return ShownOnce(shown, "secret", what="webhook")

    def perform_update(self, serializer: BaseSerializer[Webhook]) -> None:
        serializer.instance = webhooks.update_webhook(
            user=self.person, webhook=self.get_object(), fields=serializer.validated_data
        )

    def perform_destroy(self, instance: Webhook) -> None:
        webhooks.delete_webhook(user=self.person, webhook=instance)

    @extend_schema(request=None, responses={202: WebhookDeliverySerializer})
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: str) -> Response:
        """Send a `webhook.test` event. The delivery has the result."""
        delivery = webhooks.send_test(user=self.person, webhook=self.get_object())
        return Response(WebhookDeliverySerializer(delivery).data, status=status.HTTP_202_ACCEPTED)


class WebhookDeliveryViewSet(
    ScopedView, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[WebhookDelivery]
):
    """Deliveries of the last 30 days, and deliveries that wait."""

    scope = "admin"
    serializer_class = WebhookDeliverySerializer
    pagination_class = NewestFirst
    queryset = WebhookDelivery.objects.none()

    def get_queryset(self) -> QuerySet[WebhookDelivery]:
        rows = WebhookDelivery.objects.visible_to(self.person).select_related("webhook")
        webhook = self.request.query_params.get("webhook") if self.action == "list" else None
        return rows.filter(webhook=identifier(webhook, "webhook")) if webhook else rows

    @extend_schema(
        parameters=[OpenApiParameter("webhook", OpenApiTypes.UUID, description=("Only deliveries of this webhook."))]
    )
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().list(request, *args, **kwargs)

    @extend_schema(request=None, responses={202: WebhookDeliverySerializer})
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, pk: str) -> Response:
        """Send the delivery again at once."""
        delivery = webhooks.retry_delivery(user=self.person, delivery=self.get_object())
        return Response(self.get_serializer(delivery).data, status=status.HTTP_202_ACCEPTED)
