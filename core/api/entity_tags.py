"""Entity tags (RFC 9110, sections 8.8.3 and 13.1.1): a program that changes a row names the version that it read."""

import re

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The ETag of the state that you read. If the row has changed since, the request is refused with 412.",
)
ETAG = OpenApiParameter("ETag", str, OpenApiParameter.HEADER, response=True, description="The value for If-Match.")
_TAG = re.compile(r'(W/)?"([^"]*)"')


def expected_tags(request: Request) -> frozenset[str] | None:
    """Return the strong tags of `If-Match`, since a weak tag never matches. None if the request accepts any version."""
    header = request.headers.get("If-Match")
    if header is None or header.strip() == "*":
        return None
    return frozenset(tag for weak, tag in _TAG.findall(header) if not weak)


def set_entity_tag(response: Response, tag: str) -> Response:
    response["ETag"] = f'"{tag}"'
    return response
