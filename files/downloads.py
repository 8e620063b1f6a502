"""Handing out originals. Whatever is in them, a browser neither guesses what they are nor runs them as ours."""

import asyncio
from collections.abc import AsyncIterator
from typing import IO

from django.http import StreamingHttpResponse
from django.utils.http import content_disposition_header

from files import services
from files.models import File

CHUNK = 256 * 1024  # bytes
SHOWN = {"image/png", "image/jpeg", "image/webp", "image/gif", "application/pdf", "text/plain"}
# Browsers refuse to show a PDF in a sandboxed document; its viewer is a sandbox of its own.
_POLICY = {"application/pdf": "default-src 'none'; object-src 'self'; frame-ancestors 'none'"}
_SANDBOX = "default-src 'none'; sandbox; frame-ancestors 'none'"


def download(file: File) -> StreamingHttpResponse:
    """The caller has checked who may see the file. Raises `file_lost` (404)."""
    media_type = file.media_type or "application/octet-stream"
    response = StreamingHttpResponse(_chunks(services.open_blob(file=file)))
    response["Content-Type"] = "text/plain; charset=utf-8" if media_type == "text/plain" else media_type
    response["Content-Length"] = str(file.size)
    response["Content-Disposition"] = content_disposition_header(media_type not in SHOWN, file.name) or "attachment"
    response["Content-Security-Policy"] = _POLICY.get(media_type, _SANDBOX)
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "private, no-store"
    return response


async def _chunks(stream: IO[bytes]) -> AsyncIterator[bytes]:
    try:
        while chunk := await asyncio.to_thread(stream.read, CHUNK):
            yield chunk
    finally:
        stream.close()
