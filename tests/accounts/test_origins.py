"""The origins of pages that may open a WebSocket with a browser's session."""

from typing import Any

import pytest
from pytest_django.fixtures import Settings

from accounts.access.authentication import SameOrigin


async def admitted(origin: str | None, scheme: str = "ws", **headers: str) -> bool:
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"} if not sent else {"type": "websocket.disconnect", "code": 1006}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    fields = {"host": "localhost:8000", **headers, **({} if origin is None else {"origin": origin})}
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    scope = {"type": "websocket", "path": "/ws/", "query_string": b"", "headers": raw, "scheme": scheme}
    await SameOrigin(app)({**scope, "server": ("127.0.0.1", 8000), "client": ("127.0.0.1", 1)}, receive, send)
    return bool(sent[0]["type"] == "websocket.accept")


async def test_our_own_pages_may() -> None:
    assert await admitted("http://localhost:8000")
    assert await admitted("https://localhost:8000", "wss")


@pytest.mark.parametrize(
    "origin",
    [
        *("http://localhost", "http://localhost:9999", "http://127.0.0.1:8000", "http://127.0.0.1:1"),
        *("https://localhost:8000", "ftp://localhost:8000", "http://localhost:8000.evil.example"),
        *("https://evil.example", "http://[", "null", "", None),
    ],
)
async def test_no_other_scheme_host_or_port_may(origin: str | None) -> None:
    assert not await admitted(origin)


async def test_those_that_the_operator_trusts_may(settings: Settings) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://chat.example", "https://*.team.example"]
    assert await admitted("https://chat.example")
    assert await admitted("https://a.team.example")
    assert not await admitted("http://chat.example")


async def test_a_proxy_with_tls_is_believed_where_the_operator_says_so(settings: Settings) -> None:
    assert not await admitted("https://localhost:8000", x_forwarded_proto="https")
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    assert await admitted("https://localhost:8000", x_forwarded_proto="https")
