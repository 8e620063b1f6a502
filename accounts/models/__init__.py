from accounts.models.group import PeopleGroup, Right
from accounts.models.limit import Limit
from accounts.models.openid import OpenIDIdentity, OpenIDProvider
from accounts.models.person import (
    ApiToken,
    Session,
    User,
    asked_with,
    validate_timezone,
    workspace_timezone,
    zone_or_workspaces,
)
from accounts.models.record import AdminRecord
from accounts.models.sharing import EDITING, Role, Sharing, SharingQuerySet, shared_with, strongest, ways_of_sharing
from accounts.models.webhook import Webhook, WebhookDelivery
from core.api.idempotent_answer import IdempotentAnswer

__all__ = [
    "EDITING",
    "AdminRecord",
    "ApiToken",
    "IdempotentAnswer",
    "Limit",
    "OpenIDIdentity",
    "OpenIDProvider",
    "PeopleGroup",
    "Right",
    "Role",
    "Session",
    "Sharing",
    "SharingQuerySet",
    "User",
    "Webhook",
    "WebhookDelivery",
    "asked_with",
    "shared_with",
    "strongest",
    "validate_timezone",
    "ways_of_sharing",
    "workspace_timezone",
    "zone_or_workspaces",
]
