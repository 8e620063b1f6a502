"""Anthropic's own client on the product."""

from collections.abc import Iterator
from typing import Any

import httpx
import httpx2
from anthropic import Anthropic

from tests.conftest import Person


class AnthropicTransport(httpx2.BaseTransport):
    """Takes the requests of Anthropic's client, which has an HTTP library of its own, to the product."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        timeout = request.extensions["timeout"]
        sent = self._http.build_request(
            request.method,
            str(request.url),
            headers=request.headers.raw,
            content=request.read(),
            timeout=timeout["read"],
        )
        response = self._http.send(sent, stream=True)
        return httpx2.Response(response.status_code, headers=response.headers.raw, stream=_AnswerStream(response))


class _AnswerStream(httpx2.SyncByteStream):
    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        yield from self._response.iter_raw()

    def close(self) -> None:
        self._response.close()


def anthropic_client(person: Person, **options: Any) -> Anthropic:
    transport = AnthropicTransport(person.caller.server.http())
    defaults: dict[str, Any] = {"api_key": person.token, "max_retries": 0}
    http = httpx2.Client(transport=transport, timeout=60)
    return Anthropic(base_url=person.caller.url, http_client=http, **{**defaults, **options})
