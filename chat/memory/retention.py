"""Forget facts whose retention period has ended. It begins when they are proposed, and again when kept or used.

The period in days is a setting of the workspace. A legal hold on the person, or on the conversation of a source,
prevents this.
"""

from datetime import timedelta

from django.db.models.functions import Coalesce
from django.utils import timezone

from accounts.access.holds import without_holds
from chat.memory.models import Fact
from chat.memory.services import forget_unused
from workspace.models.settings import workspace_at

MAX_AT_ONCE = 500  # facts in one run; the sweeper runs again in an hour


def forget_old_facts() -> int:
    """Forget the facts whose period has ended. Returns their number."""
    days = workspace_at().memory_days
    if not days:
        return 0
    cutoff = timezone.now() - timedelta(days=days)
    facts = Fact.objects.exclude(status=Fact.Status.FORGOTTEN)
    rows = without_holds(facts.alias(used=Coalesce("last_used", "confirmed", "created")).filter(used__lt=cutoff))
    return forget_unused(rows.filter(pk__in=rows.values("pk")[:MAX_AT_ONCE]))
