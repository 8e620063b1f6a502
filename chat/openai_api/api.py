"""Serve `/v1/`: the protocols of OpenAI and Anthropic.

Every request needs a token. A browser's session does not count, so CSRF protection is not needed.

A request for an answer goes through these steps, whatever its protocol:

1. The token is checked and the rate of calls is counted (`for_tokens`).
2. The body is checked (`parse`, `responses_parse`, `messages_parse`), the model is found and its abilities are compared
   (`create_turn.find_target`).
3. The files are stored and read (`request_files`), the rows are created (`create_turn.start_turn`).
4. A `Relay` follows the turn, and the protocol's `AnswerWriter` makes its events, as a stream or as one answer.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import AuthenticationFailed

from accounts.access.authentication import Credential, bearer, user_of_token
from accounts.models import User
from chat.models import Turn
from chat.openai_api import create_turn, embedding, messages_parse, parse, responses_parse, uploads
from chat.openai_api.answer import AnswerHead, AnswerWriter, Relay
from chat.openai_api.errors import add_request_id, error_response, speaks_anthropic
from chat.openai_api.messages_parse import MessagesRequest
from chat.openai_api.messages_serialize import MessageWriter
from chat.openai_api.names import find_named, named_models
from chat.openai_api.request import ProgramRequest, read_body
from chat.openai_api.responses_parse import ResponsesRequest
from chat.openai_api.responses_serialize import ResponseWriter
from chat.openai_api.sent_files import request_files
from chat.openai_api.serialize import Completion
from chat.realtime import event_stream
from chat.realtime.event_stream import threaded
from core.api.rate_limit import RateAllowance, count_call, require_within_limit
from core.api.views import missing_scope
from core.background import run_until_abandoned
from core.errors import ProductError
from core.json_types import JsonObject
from core.requests import release_slot
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
AnyView = Callable[..., Coroutine[Any, Any, HttpResponseBase]]
Request = TypeVar("Request", bound=ProgramRequest, covariant=True)


class Parse(Protocol[Request]):
    """A function that checks the body of a request."""

    def __call__(self, body: JsonObject, *, replaces_system: bool) -> Request: ...


def for_tokens(method: str, *scopes: str, rate: str = "chat") -> "Callable[[View[Arguments]], AnyView]":
    """Return a decorator for views of one method that need a token with one of the scopes.

    Calls count towards the rate limit `rate`.
    """

    def decorate(view: "View[Arguments]") -> AnyView:
        @csrf_exempt
        @wraps(view)
        async def answer(request: HttpRequest, *args: Arguments.args, **kwargs: Arguments.kwargs) -> HttpResponseBase:
            if request.method != method:
                raise _wrong_method_error(method)
            caller = await threaded(_caller)(request, scopes, rate)
            try:
                require_within_limit(caller.allowance, rate)
                response = await view(request, caller, *args, **kwargs)
            except ProductError as error:
                response = error_response(request, error)
            return _with_limits(request, response, caller.allowance)

        return answer

    return decorate


def by_method(**views: AnyView) -> AnyView:
    """Return a view that passes a request to the view of its method."""

    @csrf_exempt
    async def answer(request: HttpRequest, **kwargs: str) -> HttpResponseBase:
        view = views.get(request.method or "")
        if view is None:
            raise _wrong_method_error(" or ".join(views))
        return await view(request, **kwargs)

    return answer


def _wrong_method_error(method: str) -> ProductError:
    return ProductError(
        "method_not_allowed", Sentence("Send a {method} request to this address.", method=method), status=405
    )


def _caller(request: HttpRequest, scopes: tuple[str, ...], rate: str) -> Caller:
    """Return the caller of a request. Raises `not_authenticated` and `bad_token` (401), `missing_scope` (403)."""
    token = bearer(request)
    if token is None:
        sentence = "Send a token as “Authorization: Bearer …”. Clients call it the API key."
        raise ProductError("not_authenticated", sentence, status=401)
    try:
        user, row = user_of_token(token)
    except AuthenticationFailed as error:
        raise ProductError("bad_token", str(error.detail), status=401) from error
    if not set(scopes) & set(row.scopes):
        raise ProductError("missing_scope", missing_scope(scopes[0]), status=403)
    return Caller(user, frozenset(row.scopes), count_call(user, rate))


def _with_limits(request: HttpRequest, response: HttpResponseBase, allowance: RateAllowance | None) -> HttpResponseBase:
    """Add the headers that the clients of the protocol read."""
    anthropic = speaks_anthropic(request)
    if anthropic:
        add_request_id(response)
    if allowance is None:
        return response
    remaining = str(max(0, allowance.limit - allowance.used))
    if anthropic:
        response["Anthropic-RateLimit-Requests-Limit"] = str(allowance.limit)
        response["Anthropic-RateLimit-Requests-Remaining"] = remaining
        reset = timezone.now() + timedelta(seconds=allowance.reset)
        response["Anthropic-RateLimit-Requests-Reset"] = reset.isoformat(timespec="seconds")
    else:
        response["X-RateLimit-Limit-Requests"] = str(allowance.limit)
        response["X-RateLimit-Remaining-Requests"] = remaining
        response["X-RateLimit-Reset-Requests"] = f"{allowance.reset}s"
    return response


@for_tokens("GET", "chat")
async def models(request: HttpRequest, caller: Caller) -> HttpResponseBase:
    rows = await threaded(named_models)(caller.user)
    if not speaks_anthropic(request):
        return JsonResponse({"object": "list", "data": [entry.as_json() for entry in rows]})
    entries = [entry.as_anthropic() for entry in rows]
    first, last = (entries[0]["id"], entries[-1]["id"]) if entries else (None, None)
    return JsonResponse({"data": entries, "has_more": False, "first_id": first, "last_id": last})


@for_tokens("GET", "chat")
async def model(request: HttpRequest, caller: Caller, name: str) -> HttpResponseBase:
    entry = await threaded(find_named)(caller.user, name)
    return JsonResponse(entry.as_anthropic() if speaks_anthropic(request) else entry.as_json())


@for_tokens("POST", "chat")
async def chat_completions(request: HttpRequest, caller: Caller) -> HttpResponseBase:
    def writer(head: AnswerHead, completion_request: ProgramRequest) -> AnswerWriter:
        return Completion(head, include_usage=completion_request.include_usage)

    return await _answer_request(request, caller, parse.parse, writer, "messages")


@for_tokens("POST", "chat")
async def responses(request: HttpRequest, caller: Caller) -> HttpResponseBase:
    def writer(head: AnswerHead, responses_request: ResponsesRequest) -> AnswerWriter:
        return ResponseWriter(head, responses_request.repeated, responses_request.tools)

    return await _answer_request(request, caller, responses_parse.parse, writer, "input")


@for_tokens("POST", "chat")
async def messages(request: HttpRequest, caller: Caller) -> HttpResponseBase:
    def writer(head: AnswerHead, messages_request: MessagesRequest) -> AnswerWriter:
        return MessageWriter(head, shows_thinking=messages_request.shows_thinking)

    return await _answer_request(request, caller, messages_parse.parse, writer, "messages")


@for_tokens("POST", "chat")
async def count_tokens(request: HttpRequest, caller: Caller) -> HttpResponseBase:
    user = caller.user
    read = partial(messages_parse.parse, counts=True)
    program_request = await _read_request(request, caller, read)
    target = await threaded(create_turn.find_target)(user, program_request, request.headers.get(PROJECT))
    async with request_files(user, program_request.history.files) as files:
        tokens = await threaded(create_turn.count_tokens)(user, program_request, target, files)
    return JsonResponse({"input_tokens": tokens})


async def _read_request(request: HttpRequest, caller: Caller, parse_body: Parse[Request]) -> Request:
    """Return the checked body of a request."""
    replaces_system = _replaces_system(request, caller)
    return await asyncio.to_thread(lambda: parse_body(read_body(request), replaces_system=replaces_system))


async def _answer_request(
    request: HttpRequest,
    caller: Caller,
    parse_body: Parse[Request],
    writer: Callable[[AnswerHead, Request], AnswerWriter],
    messages_member: str,
) -> HttpResponseBase:
    """Return the answer to a request. `messages_member`: the member of the request with the messages."""
    user = caller.user
    program_request = await _read_request(request, caller, parse_body)
    target = await threaded(create_turn.find_target)(user, program_request, request.headers.get(PROJECT))
    async with request_files(user, program_request.history.files) as files:
        turn = await _start_turn(lambda: create_turn.start_turn(user, program_request, target, files))
    release_slot(request)
    head = AnswerHead(
        turn=str(turn.pk),
        model=target.named.name,
        external={tool.name for tool in program_request.options.tools},
        absolute=request.build_absolute_uri,
        prefilled=messages_member if program_request.history.rows[-1].role == "assistant" else None,
    )
    relay = Relay(turn, writer(head, program_request))
    credential = Credential.of(request, user)
    response = await _response(request, relay, credential, streamed=program_request.stream)
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


async def _start_turn(start: Callable[[], Turn]) -> Turn:
    """Start the turn. If the program disconnects meanwhile, the turn is stopped, since nobody waits for it."""
    starting = asyncio.ensure_future(threaded(start)())
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _close(Relay(await starting, Completion(AnswerHead("", "", (), str))))
        raise


async def _response(request: HttpRequest, relay: Relay, credential: Credential, *, streamed: bool) -> HttpResponseBase:
    """Return the whole answer, or a stream that lasts while the credential is valid."""
    try:
        if not streamed:
            return JsonResponse(await relay.whole(credential))
        await relay.begin()
    except BaseException as error:
        await _close(relay)
        if isinstance(error, ProductError):
            return error_response(request, error)
        raise
    return event_stream.stream_response(credential, relay)


async def _close(relay: Relay) -> None:
    await asyncio.shield(asyncio.ensure_future(threaded(relay.close)()))


@for_tokens("POST", "chat", "files")
async def embeddings(request: HttpRequest, caller: Caller) -> HttpResponseBase:
    body = await asyncio.to_thread(read_body, request)
    async with _embedding_calls.turn(caller.user.pk):
        # The next call must not start before this one has ended. It ends early if the client disconnects.
        return JsonResponse(await run_until_abandoned(partial(threaded(embedding.answer), caller.user, body)))


@for_tokens("POST", "chat")
async def completions(request: HttpRequest, caller: Caller) -> HttpResponseBase:
    raise _not_offered_error("/v1/completions", "Send the text as a message to /v1/chat/completions.")


@for_tokens("POST", "chat")
async def moderations(request: HttpRequest, caller: Caller) -> HttpResponseBase:
    raise _not_offered_error("/v1/moderations", "Ask a model about the text at /v1/chat/completions.")


def _not_offered_error(path: str, advice: str) -> ProductError:
    sentence = f"This workspace does not offer {path}. {advice}"
    return ProductError("unsupported_endpoint", Sentence.verbatim(sentence), status=404, should_retry=False)


@for_tokens("GET", "files", rate="files")
async def list_files(request: HttpRequest, caller: Caller) -> HttpResponseBase:
    return JsonResponse(await threaded(uploads.list_files)(caller.user, request.GET))


@for_tokens("POST", "files", rate="uploads")
async def upload_file(request: HttpRequest, caller: Caller) -> HttpResponseBase:
    return JsonResponse(await threaded(uploads.upload)(caller.user, request))


@for_tokens("GET", "files", rate="files")
async def retrieve_file(request: HttpRequest, caller: Caller, file_id: str) -> HttpResponseBase:
    return JsonResponse(uploads.entry(await threaded(uploads.find_file)(caller.user, file_id)))


@for_tokens("DELETE", "files", rate="files")
async def delete_file(request: HttpRequest, caller: Caller, file_id: str) -> HttpResponseBase:
    return JsonResponse(await threaded(uploads.delete)(caller.user, file_id))


@for_tokens("GET", "files", rate="files")
async def file_content(request: HttpRequest, caller: Caller, file_id: str) -> HttpResponseBase:
    return await threaded(uploads.content)(caller.user, file_id)
