"""Serve `/v1/`. Every request needs a token. A browser's session does not count, so CSRF protection is not needed.

A completion goes through these steps:

1. The token is checked and the rate of calls is counted (`for_tokens`).
2. The body is checked (`parse`), the model is found and its abilities are compared (`create_turn.target`).
3. The images are stored and read (`files_of`), the rows are created (`create_turn.start`).
4. A `Relay` follows the turn and makes the protocol's chunks, as a stream or as one answer.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import AuthenticationFailed

from accounts.access.authentication import Credential, bearer, user_of_token
from accounts.models import User
from chat.models import Turn
from chat.openai_api import create_turn, embedding
from chat.openai_api.create_turn import files_of
from chat.openai_api.errors import refusal
from chat.openai_api.names import find, named_models
from chat.openai_api.parse import body_of, parse
from chat.openai_api.serialize import ChunkHead, Completion, Relay
from chat.realtime import event_stream
from chat.realtime.event_stream import threaded
from core.api.rate_limit import RateAllowance, count, require
from core.api.views import missing_scope
from core.background import completed
from core.errors import ProductError
from core.requests import settle
from core.sentences import Sentence

PROJECT = "X-Glasshouse-Project"
REPORT = "X-Glasshouse-Report"
SYSTEM = "X-Glasshouse-System"
SYSTEM_SCOPE = "system"

_embedding_calls = embedding.PersonalCalls()


class Caller(NamedTuple):
    """The user of the token, its scopes, and the allowance of calls."""

    user: User
    scopes: frozenset[str]
    allowance: RateAllowance | None


Arguments = ParamSpec("Arguments")
View = Callable[Concatenate[HttpRequest, Caller, Arguments], Coroutine[Any, Any, HttpResponseBase]]


def for_tokens(
    method: str, *scopes: str
) -> "Callable[[View[Arguments]], Callable[..., Coroutine[Any, Any, HttpResponseBase]]]":
    """Return a decorator for views of one method that need a token with one of the scopes.

    Calls count towards the rate limit `chat`.
    """

    def decorate(view: "View[Arguments]") -> Callable[..., Coroutine[Any, Any, HttpResponseBase]]:
        @csrf_exempt
        @wraps(view)
        async def answer(request: HttpRequest, *args: Arguments.args, **kwargs: Arguments.kwargs) -> HttpResponseBase:
            if request.method != method:
                raise ProductError(
                    "method_not_allowed",
                    Sentence("Send a {method} request to this address.", method=method),
                    status=405,
                )
            caller = await threaded(_caller)(request, scopes)
            try:
                require(caller.allowance, "chat")
                response = await view(request, caller, *args, **kwargs)
            except ProductError as error:
                response = refusal(error)
            return _with_limits(response, caller.allowance)

        return answer

    return decorate


def _caller(request: HttpRequest, scopes: tuple[str, ...]) -> Caller:
    """Return the caller of a request. Raises `not_authenticated` and `bad_token` (401), `missing_scope` (403)."""
    token = bearer(request)
    if token is None:
        sentence = "Send a token as “Authorization: Bearer …”: it is what the clients call the API key."
        raise ProductError("not_authenticated", sentence, status=401)
    try:
        user, row = user_of_token(token)
    except AuthenticationFailed as error:
        raise ProductError("bad_token", str(error.detail), status=401) from error
    if not set(scopes) & set(row.scopes):
        raise ProductError("missing_scope", missing_scope(scopes[0]), status=403)
    return Caller(user, frozenset(row.scopes), count(user, "chat"))


def _with_limits(response: HttpResponseBase, allowance: RateAllowance | None) -> HttpResponseBase:
    if allowance is not None:
        response["X-RateLimit-Limit-Requests"] = str(allowance.limit)
        response["X-RateLimit-Remaining-Requests"] = str(max(0, allowance.limit - allowance.used))
        response["X-RateLimit-Reset-Requests"] = f"{allowance.reset}s"
    return response


@for_tokens("GET", "chat")
async def models(request: HttpRequest, caller: Caller) -> HttpResponseBase:
    rows = await threaded(named_models)(caller.user)
    return JsonResponse({"object": "list", "data": [entry.as_json() for entry in rows]})


@for_tokens("GET", "chat")
async def model(request: HttpRequest, caller: Caller, name: str) -> HttpResponseBase:
    entry = await threaded(find)(caller.user, name)
    return JsonResponse(entry.as_json())


@for_tokens("POST", "chat")
async def chat_completions(request: HttpRequest, caller: Caller) -> HttpResponseBase:
    user = caller.user
    replaces_system = _replaces_system(request, caller)
    completion_request = await asyncio.to_thread(lambda: parse(body_of(request), replaces_system=replaces_system))
    target = await threaded(create_turn.target)(user, completion_request, request.headers.get(PROJECT))
    files = await files_of(user, completion_request.history.pictures)
    turn = await _started(lambda: create_turn.start(user, completion_request, target, files))
    settle(request)
    head = ChunkHead(
        turn=str(turn.pk),
        model=target.named.name,
        external={tool.name for tool in completion_request.options.tools},
        absolute=request.build_absolute_uri,
        include_usage=completion_request.include_usage,
        ends_with_answer=completion_request.history.rows[-1].role == "assistant",
    )
    relay = Relay(turn, Completion(head))
    response = await _response(relay, Credential.of(request, user), streamed=completion_request.stream)
    response[REPORT] = request.build_absolute_uri(reverse("turn-report", args=[turn.pk]))
    return response


def _replaces_system(request: HttpRequest, caller: Caller) -> bool:
    """Return whether the program's system messages replace the workspace's system prompt.

    The request's header decides; without the header, the token's scope. Raises `bad_header` (400) and `missing_scope`
    (403).
    """
    choice = request.headers.get(SYSTEM, "").strip().lower()
    if choice not in ("", "replace", "beside"):
        raise ProductError("bad_header", Sentence("The header {system} must be “replace” or “beside”.", system=SYSTEM))
    if choice == "replace" and SYSTEM_SCOPE not in caller.scopes:
        raise ProductError("missing_scope", missing_scope(SYSTEM_SCOPE), status=403)
    return choice != "beside" and SYSTEM_SCOPE in caller.scopes


async def _started(start: Callable[[], Turn]) -> Turn:
    """Start the turn. If the program disconnects meanwhile, the turn is stopped, since nobody waits for it."""
    starting = asyncio.ensure_future(threaded(start)())
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _close(Relay(await starting, Completion(ChunkHead("", "", (), str))))
        raise


async def _response(relay: Relay, credential: Credential, *, streamed: bool) -> HttpResponseBase:
    """Return the whole answer, or a stream that lasts while the credential is valid."""
    try:
        if not streamed:
            return JsonResponse(await relay.whole(credential))
        await relay.begin()
    except BaseException as error:
        await _close(relay)
        if isinstance(error, ProductError):
            return refusal(error)
        raise
    return event_stream.response(credential, relay)


async def _close(relay: Relay) -> None:
    await asyncio.shield(asyncio.ensure_future(threaded(relay.close)()))


@for_tokens("POST", "chat", "files")
async def embeddings(request: HttpRequest, caller: Caller) -> HttpResponseBase:
    body = await asyncio.to_thread(body_of, request)
    async with _embedding_calls.turn(caller.user.pk):
        # The next call must not start before this one has ended, even if the client disconnects.
        return JsonResponse(await completed(threaded(embedding.answer)(caller.user, body)))
