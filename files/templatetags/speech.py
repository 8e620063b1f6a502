"""The speech servers of the workspace, for the buttons of a page."""

from collections.abc import Mapping
from typing import Any

from django import template

from files.models import SpeechServer
from files.speech.services import active_servers
from workspace.models.settings import version_of

register = template.Library()


@register.simple_tag(takes_context=True)
def speech_servers(context: Mapping[str, Any]) -> Mapping[str, SpeechServer]:
    """Return the active servers by their kind. Makes no query: the session has the version of the workspace."""
    return active_servers(version_of(context["request"]))
