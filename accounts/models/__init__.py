from accounts.models.person import ApiToken, IdempotentAnswer, Session, User, validate_timezone, workspace_timezone
from accounts.models.record import AdminRecord
from accounts.models.webhook import Webhook, WebhookDelivery

__all__ = [
    "AdminRecord",
    "ApiToken",
    "IdempotentAnswer",
    "Session",
    "User",
    "Webhook",
    "WebhookDelivery",
    "validate_timezone",
    "workspace_timezone",
]
