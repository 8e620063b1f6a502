"""Store the tasks that a person's message mentions with @, for their day."""

from datetime import datetime

from accounts.models import User
from chat.models import Mention
from projects.planner.models import codes
from projects.planner.models.task import Task
from projects.planner.queries import mentioned_task_codes, today


def remember_mentions(*, user: User, text: str, at: datetime) -> None:
    """Store the existing tasks that a message mentions, for the user's day at that moment."""
    mentioned = codes.find_mentions(text) if "@" in text else []
    if not mentioned:
        return
    existing = (
        Task.objects.visible_to(user).filter(code__in=mentioned_task_codes(mentioned)).values_list("code", flat=True)
    )
    day = today(user, at)
    Mention.objects.bulk_create((Mention(user=user, day=day, code=code) for code in existing), ignore_conflicts=True)
