"""Call an operation of an OpenAPI document: make the request from the arguments, and the output from the response.

Every address is checked when the connection is opened (`core.net`), and no redirect is followed: the arguments of a
model must not send the secret to another host.
"""

import asyncio
import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_network
from typing import Any
from urllib.parse import quote, urlencode

import httpx2

from core.crypto import KEY_LOST, is_lost
from core.net.addresses import HostListing, host_of
from core.net.fetch import CONNECT_TIMEOUT, ENCODINGS, CheckedTransport, Fetcher, read_body
from core.net.outgoing import note, noting
from core.net.url_safety import PORTS, FetchRefused, Guard
from core.outside import wait_outside
from core.sentences import Sentence
from core.text import clean
from llm.tools.mcp_content import to_output
from llm.tools.openapi import FORM, MULTIPART, DocumentRefused, OperationArgument, StoredOperation, is_json_type
from llm.tools.servers import ToolServerConfig
from llm.types.tools import BadArguments, ToolOutput

MAX_BYTES = 16_000_000  # of a response; the rest is not read
MAX_URL = 16_000  # characters
DOCUMENT_TIMEOUT = 30.0  # seconds
DOCUMENT_TYPES = (
    *("application/json", "application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain"),
    *("application/vnd.oai.openapi", "application/vnd.oai.openapi+json", "application/octet-stream"),
)
# Private networks, for servers with `own_network`. Link-local addresses are left out, since clouds serve secrets there.
OWN_NETWORKS = tuple(
    ip_network(network)
    for network in (
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8"),
        *("::1/128", "fc00::/7"),
    )
)
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]")
_TEXT_TYPES = re.compile(
    r"text/|application/(?:[a-z0-9.+-]{0,80}\+)?(?:json|xml)\Z|application/(?:x-)?(?:yaml|ndjson|javascript)"
)
_WESTERN_CHARSETS = ("iso-8859-1", "latin-1", "latin1", "windows-1252", "cp1252")


async def fetch_document(address: str) -> bytes:
    """Return the bytes of a document at a public address, at most `MAX_BYTES` + 1. Raises `DocumentRefused`."""
    try:
        url = httpx2.URL(address)
        fetcher = Fetcher(timeout=DOCUMENT_TIMEOUT)
        fetched = await fetcher.fetch(url, dict.fromkeys(DOCUMENT_TYPES, MAX_BYTES + 1))
    except (httpx2.InvalidURL, ValueError) as error:
        raise DocumentRefused(Sentence("This is not an address. Enter one that begins with https://.")) from error
    except FetchRefused as refusal:
        raise DocumentRefused(
            Sentence("The document was not fetched. {reason} You can upload it instead.", reason=refusal.sentence)
        ) from refusal
    return fetched.body


def fetch_document_blocking(address: str) -> bytes:
    """Fetch a document as `fetch_document` does, from a thread without an event loop."""
    with wait_outside():
        return asyncio.run(fetch_document(address))


@dataclass(frozen=True, slots=True)
class OperationRequest:
    """A request for a call. `record`: its text for the record of requests that leave the workspace."""

    method: str
    url: httpx2.URL
    headers: Mapping[str, str]
    content: bytes
    record: str


async def call_operation(
    server: ToolServerConfig, tool: str, operation: StoredOperation, arguments: Mapping[str, Any]
) -> ToolOutput:
    """Call an operation. Return a failure of the server as an output, too. Raises `BadArguments`."""
    if any(map(is_lost, server.secrets.values())):
        return ToolOutput(f"{server.name} was not asked. {Sentence(KEY_LOST).english}", error=True)
    request = build_request(server, operation, arguments)
    host = host_of(str(request.url))
    if server.hosts.listing_of(host) is HostListing.DENIED:
        return ToolOutput(
            f"The workspace denies the host {host}, so it was not called. Continue without it.", error=True
        )
    if server.reaches_out:
        note(host, request.record)
    try:
        with noting():  # the transport would record the address alone
            response = await _send(server, request)
    except FetchRefused as refusal:
        return ToolOutput(str(refusal), error=True)
    # In a thread: decoding the largest response takes a tenth of a second, which would block other answers.
    return await asyncio.to_thread(response.to_output, tool)


def build_request(
    server: ToolServerConfig, operation: StoredOperation, arguments: Mapping[str, Any]
) -> OperationRequest:
    """Return the request for a call. Raises `BadArguments`."""
    body = operation["body"]
    names = [each["name"] for each in operation["arguments"]] + ([body["name"]] if body is not None else [])
    if unknown := [name for name in arguments if name not in names]:
        expected = ", ".join(names) or "none"
        raise BadArguments(f"There is no argument “{str(unknown[0])[:100]}”. The arguments are: {expected}.")
    path, query = operation["path"], []
    headers: dict[str, str] = {"Accept": "application/json, */*;q=0.5", "Accept-Encoding": "gzip"}
    for argument in operation["arguments"]:
        value = arguments.get(argument["name"])
        if value is None:
            if argument["required"]:
                raise BadArguments(f"The argument “{argument['name']}” is missing.")
        elif argument["place"] == "path":
            path = path.replace(f"{{{argument['parameter']}}}", _encode_for_path(argument, value))
        elif argument["place"] == "query":
            query += _encode_for_query(argument, value)
        else:
            headers[argument["parameter"]] = _encode_for_header(argument, value)
    content = b""
    if body is not None and arguments.get(body["name"]) is not None:
        content, headers["Content-Type"] = _encode_body(body["media_type"], arguments[body["name"]])
    elif body is not None and body["required"]:
        raise BadArguments(f"The argument “{body['name']}” is missing.")
    address = server.url.rstrip("/") + path + (f"?{urlencode(query, quote_via=quote)}" if query else "")
    if len(address) > MAX_URL:
        raise BadArguments(f"The arguments make an address of more than {MAX_URL} characters.")
    method = operation["method"].upper()
    record = f"{method} {address}\n{content.decode(errors='replace')}".strip()
    return OperationRequest(method, httpx2.URL(address), {**headers, **server.secrets}, content, record)


def _encode_for_path(argument: OperationArgument, value: Any) -> str:
    text = _join_value(argument, value, ",")
    if text.strip(".") == "":
        raise BadArguments(f"“{argument['name']}” must not be empty, and not consist of dots.")
    return quote(text, safe=",") if isinstance(value, list | dict) else quote(text, safe="")


def _encode_for_header(argument: OperationArgument, value: Any) -> str:
    text = _join_value(argument, value, ",")
    if _CONTROL_CHARACTERS.search(text) or not text.isascii():
        raise BadArguments(f"“{argument['name']}” must be one line of ASCII characters.")
    return text


def _join_value(argument: OperationArgument, value: Any, separator: str) -> str:
    """Return the value in the style `simple` of OpenAPI."""
    if argument["style"] == "json":
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return separator.join(_to_text(each) for each in value)
    if isinstance(value, dict):
        pairs = [(str(name), _to_text(each)) for name, each in value.items()]
        equals = "=" if argument["explode"] else separator
        return separator.join(f"{name}{equals}{each}" for name, each in pairs)
    return _to_text(value)


def _encode_for_query(argument: OperationArgument, value: Any) -> list[tuple[str, str]]:
    """Return the pairs of a query for a value, in the argument's style of OpenAPI."""
    name, style = argument["parameter"], argument["style"]
    if style == "json":
        return [(name, json.dumps(value, ensure_ascii=False))]
    if style == "deepObject" and isinstance(value, dict):
        return [(f"{name}[{each}]", _to_text(inner)) for each, inner in value.items()]
    if isinstance(value, dict) and argument["explode"]:
        return [(str(each), _to_text(inner)) for each, inner in value.items()]
    if isinstance(value, list) and argument["explode"]:
        return [(name, _to_text(each)) for each in value]
    separator = {"spaceDelimited": " ", "pipeDelimited": "|"}.get(style, ",")
    return [(name, _join_value(argument, value, separator))]


def _to_text(value: Any) -> str:
    """Return a single value as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list) or value is None:
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _encode_body(media_type: str, value: Any) -> tuple[bytes, str]:
    """Return the body of a request and its Content-Type."""
    if is_json_type(media_type):
        sent_as = "application/json" if "*" in media_type else media_type
        return json.dumps(value, ensure_ascii=False).encode(), sent_as
    if media_type in (FORM, MULTIPART):
        if not isinstance(value, dict):
            raise BadArguments("The body must be an object with the fields of the form.")
        fields = list(_iterate_form_fields(value))
        if media_type == FORM:
            return urlencode(fields).encode(), FORM
        form = httpx2.Request("POST", "http://form", files=[(name, (None, text)) for name, text in fields])
        return form.read(), form.headers["content-type"]
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode(), media_type


def _iterate_form_fields(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in body.items():
        for each in value if isinstance(value, list) else [value]:
            yield str(name), _to_text(each)


async def _send(server: ToolServerConfig, request: OperationRequest) -> "OperationResponse":
    """Send a request. Raises `FetchRefused`."""
    port = request.url.port
    guard = Guard(
        ports=PORTS | ({port} if port is not None else set()),
        allowed_networks=OWN_NETWORKS if server.own_network else (),
    )
    client = httpx2.AsyncClient(
        transport=CheckedTransport(guard),
        timeout=httpx2.Timeout(server.timeout, connect=CONNECT_TIMEOUT),
        trust_env=False,  # a proxy would choose the address itself
    )
    host = request.url.host
    try:
        async with (
            client,
            client.stream(
                request.method, request.url, headers=dict(request.headers), content=request.content or None
            ) as response,
        ):
            if response.headers.get("content-encoding", "").strip().lower() not in ENCODINGS:
                raise FetchRefused(f"{host} sent an answer in an encoding that was not requested.")
            body, cut = await read_body(response, MAX_BYTES)
            return OperationResponse(
                url=str(request.url),
                status=response.status_code,
                media_type=response.headers.get("content-type", "").partition(";")[0].strip().lower(),
                charset=(response.charset_encoding or "").lower(),
                location=response.headers.get("location", ""),
                body=body,
                cut=cut,
            )
    except httpx2.TimeoutException as error:
        raise FetchRefused(f"{host} did not send a complete answer in time.") from error
    except httpx2.ConnectError as error:
        raise FetchRefused(f"{host} cannot be reached, or its certificate is not valid.") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise FetchRefused(f"{host} sent an answer that is broken or has too large headers.") from error


@dataclass(frozen=True, slots=True)
class OperationResponse:
    """A response. `cut`: the body was longer than `body`."""

    url: str
    status: int
    media_type: str
    charset: str
    location: str
    body: bytes
    cut: bool

    def to_output(self, tool: str) -> ToolOutput:
        """Return the output of a tool: a text unchanged, another body as a file."""
        output = self._body_output(tool)
        status = self._status_line()
        if not status:
            return output
        text = "\n".join(filter(None, (status, output.text)))
        return replace(output, text=text, full_text=text, error=not 200 <= self.status < 300)

    def _body_output(self, tool: str) -> ToolOutput:
        if not self.body:
            return ToolOutput("")
        if _TEXT_TYPES.match(self.media_type) or (not self.media_type and _is_text(self.body)):
            end = f"\n[… The answer is longer than {MAX_BYTES // 1_000_000} MB; the rest was not read. …]"
            text = clean(self._decode()) + (end if self.cut else "")
            return ToolOutput(text, full_text=text, partial=self.cut)
        if self.cut:
            text = f"The answer is a file of more than {MAX_BYTES // 1_000_000} MB, which is not read."
            return ToolOutput(text, error=True, full_text=text)
        data = base64.b64encode(self.body).decode()
        kind = self.media_type.partition("/")[0]
        if kind in ("image", "audio"):
            return to_output({"content": [{"type": kind, "data": data, "mimeType": self.media_type}]}, tool)
        resource = {"uri": self.url, "blob": data, "mimeType": self.media_type}
        return to_output({"content": [{"type": "resource", "resource": resource}]}, tool)

    def _status_line(self) -> str:
        """Return a line about the status; empty for a successful status with a body."""
        if 300 <= self.status < 400:
            place = clean(self.location)[:500]
            return f"The server answered with status {self.status} and leads to {place}. Redirects are not followed."
        if 200 <= self.status < 300 and self.body:
            return ""
        return f"The server answered with status {self.status}{'' if self.body else ' and nothing else'}."

    def _decode(self) -> str:
        if self.charset in _WESTERN_CHARSETS:
            return self.body.decode("cp1252", "replace")
        return self.body.decode("utf-8-sig", "replace")


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return b"\x00" not in body
