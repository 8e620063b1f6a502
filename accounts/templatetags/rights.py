"""The tag `{% lacking "share" as why %}`: the reason for a page not to offer an act that needs a missing right."""

from typing import Any

from django import template
from django.utils.translation import gettext

from accounts.access.rights import MISSING_RIGHTS, may
from accounts.models import Right
from workspace.models.settings import version_of

register = template.Library()


@register.simple_tag(takes_context=True)
def lacking(context: Any, right: str) -> str:
    """Return a sentence about the missing right; empty if the person has the right.

    `right`: a value of `accounts.models.Right`.
    """
    request = context["request"]
    checked = Right(right)
    if may(request.user, checked, version_of(request)):
        return ""
    return gettext(MISSING_RIGHTS[checked])
