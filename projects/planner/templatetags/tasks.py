from django import template

from accounts.models import User
from projects.planner.models.task import Progress
from projects.planner.pages import today_count

register = template.Library()


@register.simple_tag
def tasks_today(user: User) -> Progress:
    """The user's tasks of today, without dropped and moved ones, in one query."""
    return today_count(user)
