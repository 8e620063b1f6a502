"""The tag `{% settings_pages place %}`: the way between the pages of settings."""

from typing import TypedDict

from django import template

from accounts.places import GROUPS, SettingsGroup

register = template.Library()


class SettingsNavigation(TypedDict):
    """The context of `accounts/_places.html`. `groups`: each group, and whether it has the page `place`."""

    place: str
    groups: list[tuple[SettingsGroup, bool]]


@register.inclusion_tag("accounts/_places.html")
def settings_pages(place: str) -> SettingsNavigation:
    """Return the groups of pages. On a phone, the pages of the group of `place` are shown."""
    return {"place": place, "groups": [(group, group.has(place)) for group in GROUPS]}
