"""Serve `/mcp/`: the product as an MCP server over streamable HTTP, for tokens of people.

1. The token is checked and the call is counted against the rate limit, as for the REST API.
2. Requests are stateless. `chat.mcp_server.exchange` passes each request to the protocol's package, which knows all
   versions of the protocol, and returns its response.
3. A call runs a tool of `chat.mcp_server.tools`.

Importing the protocol's package takes half a second, so the first request loads it, in a thread.
"""

import asyncio
import json
from importlib import import_module
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import AuthenticationFailed

from accounts.access.authentication import bearer, user_of_token
from chat.mcp_server.tools import SCOPES, TOOLS_BY_NAME, McpCaller
from chat.realtime.event_stream import threaded
from core.api.rate_limit import count_call, require_within_limit
from core.api.views import missing_scope
from core.errors import ProductError
from core.sentences import Sentence

EXCHANGE_MODULE = "chat.mcp_server.exchange"
MAX_BODY = 1_000_000  # bytes; ten times the longest question


@csrf_exempt  # every request needs a token
async def mcp(request: HttpRequest) -> HttpResponseBase:
    """Answer one request of an MCP client."""
    caller = await threaded(_authenticate)(request)
    if request.method != "POST":
        sentence = Sentence("Send a POST request to this address. It has no sessions and no event stream.")
        raise ProductError("method_not_allowed", sentence, status=405)
    body = request.body
    if len(body) > MAX_BODY:
        sentence = Sentence("The request has more than {most} bytes. Send a smaller request.", most=MAX_BODY)
        raise ProductError("request_too_large", sentence, status=413)
    kind = _call_kind(body)
    allowance = await threaded(count_call)(caller.user, kind)
    require_within_limit(allowance, kind)
    await asyncio.to_thread(import_module, EXCHANGE_MODULE)
    from chat.mcp_server import exchange  # noqa: PLC0415 - loaded above, not at the start

    response = await exchange.respond(request, body, caller)
    if allowance is not None:
        allowance.set_headers(response)
    return response


def _authenticate(request: HttpRequest) -> McpCaller:
    """Return the caller. Raises `not_authenticated`, `bad_token` (401) and `missing_scope` (403)."""
    token = bearer(request)
    if token is None:
        sentence = "Send a token as “Authorization: Bearer …”. Create one on the settings page."
        raise ProductError("not_authenticated", sentence, status=401)
    try:
        user, row = user_of_token(token)
    except AuthenticationFailed as error:
        raise ProductError("bad_token", str(error.detail), status=401) from error
    if not SCOPES & set(row.scopes):
        raise ProductError("missing_scope", missing_scope("chat"), status=403)
    return McpCaller(user, frozenset(row.scopes), request.build_absolute_uri)


def _call_kind(body: bytes) -> str:
    """Return the kind of call for the rate limit: the scope of the tool that is called, or `chat`."""
    try:
        message: Any = json.loads(body)
    except (ValueError, RecursionError):
        return "chat"
    params = message.get("params") if isinstance(message, dict) else None
    name = params.get("name") if isinstance(params, dict) else None
    tool = TOOLS_BY_NAME.get(name) if isinstance(name, str) else None
    return tool.scope if tool is not None else "chat"
