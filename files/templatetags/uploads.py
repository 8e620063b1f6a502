"""How large a file may be, for pages that say so before it is sent."""

from typing import NamedTuple

from django import template
from django.conf import settings

register = template.Library()


class UploadLimit(NamedTuple):
    bytes: int
    words: str


@register.simple_tag
def upload_limit() -> UploadLimit:
    return UploadLimit(settings.MAX_UPLOAD_BYTES, f"{settings.MAX_UPLOAD_BYTES / 1_000_000:.0f} MB")
