"""`{% lacking "share" as why %}`: why the person may not do it, for a page that then does not offer it."""

from typing import Any

from django import template
from django.utils.translation import gettext

from accounts.access.rights import LACKING, may
from accounts.models import May
from workspace.models.settings import version_of

register = template.Library()


@register.simple_tag(takes_context=True)
def lacking(context: Any, right: str) -> str:
    """A sentence; empty where one of their groups lets them. `right`: a value of `accounts.models.May`."""
    request, wanted = context["request"], May(right)
    if may(request.user, wanted, version_of(request)):
        return ""
    return gettext(LACKING[wanted])
