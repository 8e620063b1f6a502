from accounts.models.group import May, PeopleGroup
from accounts.models.limit import Limit
from accounts.models.openid import OpenIDIdentity, OpenIDProvider
from accounts.models.person import ApiToken, IdempotentAnswer, Session, User, validate_timezone, workspace_timezone
from accounts.models.record import AdminRecord
from accounts.models.webhook import Webhook, WebhookDelivery
from accounts.models.workspace import DateAwareness, Workspace

__all__ = [
    "AdminRecord",
    "ApiToken",
    "DateAwareness",
    "IdempotentAnswer",
    "Limit",
    "May",
    "OpenIDIdentity",
    "OpenIDProvider",
    "PeopleGroup",
    "Session",
    "User",
    "Webhook",
    "WebhookDelivery",
    "Workspace",
    "validate_timezone",
    "workspace_timezone",
]
