"""The tag `{% lacking "share" as why %}`: why a person lacks a right, for a page that does not offer the act then."""

from typing import Any

from django import template
from django.utils.translation import gettext

from accounts.access.rights import LACKING, may
from accounts.models import May
from workspace.models.settings import version_of

register = template.Library()


@register.simple_tag(takes_context=True)
def lacking(context: Any, right: str) -> str:
    """Return a sentence; empty where the person has the right. `right`: a value of `accounts.models.May`."""
    request = context["request"]
    checked = May(right)
    if may(request.user, checked, version_of(request)):
        return ""
    return gettext(LACKING[checked])
