from django import template

from accounts.models import User
from projects.models import Invitation

register = template.Library()


@register.simple_tag
def invitations_of(user: User) -> int:
    """Return the number of invitations that wait for the user's answer, by one query."""
    return Invitation.objects.visible_to(user).count()
