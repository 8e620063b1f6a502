from django import template

from accounts.models import User
from projects.models import Invitation

register = template.Library()


@register.simple_tag
def invitations_of(user: User) -> int:
    """How many wait for the user's answer, in one query."""
    return Invitation.objects.visible_to(user).count()
