"""The size limit of uploads, for pages that show it before a file is sent."""

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
