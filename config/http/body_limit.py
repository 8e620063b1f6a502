"""The size of a request, refused before its body is read: Django would first write all of it to a temporary file."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from django.conf import settings

from config.http.problems import MEDIA_TYPE

ROOM_FOR_FORM = 1_000_000  # bytes of a multipart form around the file

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[..., Awaitable[None]]


class BodyLimit:
    """Answers 413 to what says that it is larger than the largest upload."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) <= settings.MAX_UPLOAD_BYTES + ROOM_FOR_FORM:
            await self.app(scope, receive, send)
            return
        most = f"{settings.MAX_UPLOAD_BYTES / 1_000_000:,.0f} MB"
        problem = {
            "type": "about:blank",
            "title": "Too large",
            "status": 413,
            "code": "file_too_large",
            "detail": f"This is larger than {most}, the most that can be uploaded. Split it and upload the parts.",
            "errors": [],
            "request_id": "",
        }
        body = json.dumps(problem).encode()
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 413, "headers": [*headers, (b"connection", b"close")]})
        await send({"type": "http.response.body", "body": body})
