"""What a token may do, how often, and how a repeated write is answered. A session may do what its user may.

So many calls a minute of each kind, counted per person, not per token: a new token does not make room. A kind is a
scope, or `uploads`; the numbers are `settings.API_RATES`, and 0 sets no limit. The counters are in the cache, one per
minute of the clock, so all processes count together and a count needs no history. Tries of passwords are counted in
the same way, see `accounts.access.login_throttle`.

`Idempotency-Key` on writes: a program that heard no answer may ask again without doing it twice. A call is a person's
key with a method and a path. Its first answer is kept for a day and given again, marked `Idempotent-Replayed: true`.
The same key with something else in it is refused with `idempotency_key_reused` (422), and while the first call still
runs, with `request_in_progress` (409). What says only "not now" is not kept: 409, 429, 5xx. Nor are secrets that are
shown once: a repeat names the token or webhook that was made, with null in the secret's place, and says so.

What the call does and its answer are committed in one transaction, under an advisory lock of that transaction. So of
two calls at once one runs; a process that dies leaves neither effects, nor an answer, nor a lock that somebody would
have to time out; and no moment exists in which one is stored without the other. Redis could promise none of this.
After a 5xx the effects are rolled back, since a repeat runs anew.

`Turn.idempotency_key` is the same key kept with the turn itself, for pages and sockets, and longer than a day.
"""

import hashlib
import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.core.files.uploadedfile import UploadedFile
from django.db import close_old_connections, connection, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from redis.exceptions import RedisError
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.access.authentication import bearer, user_of_token
from accounts.models import ApiToken, IdempotentAnswer, User
from core.crypto import is_lost
from core.errors import ProductError
from core.locks import try_lock
from core.requests import EVENT_STREAM, query_names, refuse_unknown_query
from core.sentences import Sentence

WINDOW = 60  # seconds

KEY_HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
LONGEST_KEY = 100  # characters
KEPT_FOR = timedelta(hours=24)
KEPT_HEADERS = ("Content-Type", "Location", "ETag")
WRITES = ("POST", "PUT", "PATCH", "DELETE")
PASSING = (409, 429)
SOON = 1  # seconds after which to ask again


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left after this call; `used` may be above `limit`. `reset` is in seconds, at least 1; `key` counts."""

    limit: int
    used: int
    reset: int
    key: str

    @property
    def exceeded(self) -> bool:
        return self.used > self.limit

    def write(self, response: HttpResponseBase) -> None:
        """The header fields of draft-ietf-httpapi-ratelimit-headers-06."""
        response["RateLimit-Limit"] = str(self.limit)
        response["RateLimit-Remaining"] = str(max(0, self.limit - self.used))
        response["RateLimit-Reset"] = str(self.reset)


def count(user: User, kind: str) -> Allowance | None:
    """Counts one call; None where there is no limit."""
    return counted(f"calls:{kind}:{user.pk}", settings.API_RATES.get(kind, 0), WINDOW)


def counted(what: str, limit: int, seconds: int) -> Allowance | None:
    """Counts one more of `what` in the present window of so many seconds of the clock; a limit of 0 is none."""
    if not limit:
        return None
    window, into = divmod(time.time(), seconds)
    key = f"{what}:{window:.0f}"
    try:
        cache.add(key, 0, 2 * seconds)
        used = cache.incr(key)
    except (RedisError, ValueError):
        return None  # Redis is away, or has just forgotten the key: better uncounted than refused
    return Allowance(limit, used, max(1, round(seconds - into)), key)


def take_back(allowance: Allowance, times: int = 1) -> None:
    """Uncount so many of what turned out not to count. Nobody gets a credit: the count does not fall below 0."""
    with suppress(RedisError, ValueError):
        left = cache.decr(allowance.key, times)
        if left < 0:
            cache.incr(allowance.key, -left)


def forget(allowance: Allowance) -> None:
    """Counts from nothing again."""
    with suppress(RedisError):
        cache.delete(allowance.key)


def require(allowance: Allowance | None, kind: str) -> None:
    """Raises `throttled` (429) once more calls were made than are allowed."""
    if allowance is not None and allowance.exceeded:
        raise ProductError(
            "throttled",
            Sentence(
                "These were more than {limit} calls of the kind “{kind}” within a minute, the most that are "
                "taken. Try again in {reset} s.",
                limit=allowance.limit,
                kind=kind,
                reset=allowance.reset,
            ),
            status=429,
            retry_after=allowance.reset,
        )


class Replay(Exception):
    """Ends a call before it runs: here is its answer."""

    def __init__(self, answer: IdempotentAnswer) -> None:
        super().__init__(answer.call)
        self.answer = answer

    def response(self) -> HttpResponse:
        response = HttpResponse(self.answer.body, status=self.answer.status)
        del response["Content-Type"]  # Django gives even a 204 one
        for name, value in {**self.answer.headers, REPLAYED: "true"}.items():
            response[name] = value
        return response


def key_of(request: Request) -> str | None:
    """None when the request carries none. Raises `bad_idempotency_key`."""
    key = request.headers.get(KEY_HEADER, "")
    if len(key) > LONGEST_KEY:
        raise ProductError(
            "bad_idempotency_key",
            Sentence(
                "The Idempotency-Key is longer than {longest_key} characters; send a UUID.", longest_key=LONGEST_KEY
            ),
        )
    return key or None


class ShownOnce(Response):
    """The answer to making a secret, whose member `once` it is: in a repeat that is null, and `left_out` says why."""

    def __init__(self, data: Mapping[str, Any], once: str, *, what: str) -> None:
        super().__init__({**data, "left_out": ""}, status=201, headers={"Cache-Control": "no-store"})
        self.once = once
        self.left_out = Sentence(
            "This repeats an answer that was given before. “{once}” was shown in that one only and is left out here. "
            "If it was lost, end this {what} and make another, with a new Idempotency-Key.",
            once=once,
            what=Sentence(what),
        )


class Call:
    """A write that runs now, and only here, until the transaction around it ends."""

    def __init__(self, row: IdempotentAnswer) -> None:
        self._row = row

    def keep(self, response: HttpResponseBase) -> None:
        """Stores the answer; of a stream, which could not be given again, what was asked. A 5xx is rolled back."""
        if response.status_code >= 500:
            transaction.set_rollback(True)
        if response.status_code >= 500 or response.status_code in PASSING:
            return
        render = getattr(response, "render", None)
        if render is not None:
            render()
        self._row.status = response.status_code
        self._row.headers = {name: response[name] for name in KEPT_HEADERS if name in response}
        self._row.body = response.content.decode() if isinstance(response, HttpResponse) else ""
        if isinstance(response, ShownOnce):
            told = {response.once: None, "left_out": str(response.left_out)}
            self._row.body = json.dumps({**json.loads(self._row.body), **told})
        self._row.save()


def begin(user: User, key: str, request: Request, new_each_time: Collection[str] = ()) -> Call:
    """Call it in a transaction. What it raises says that the call must not run: `Replay`, `request_in_progress`,
    `idempotency_key_reused` or `answer_lost`. A repeat may differ in the members `new_each_time`.

    A call that is answered with events runs each time: its key leads to what it has begun before, which it follows.
    """
    call = _hash([key, str(request.method), request.path])
    if not try_lock(f"{user.pk}:{call}"):
        sentence = Sentence("The first request with this Idempotency-Key is still running. Ask again in a moment.")
        raise ProductError("request_in_progress", sentence, status=409, retry_after=SOON)
    sent = _hash(_contents(request, new_each_time))
    earlier = IdempotentAnswer.objects.filter(user=user, call=call).first()
    if earlier is None or earlier.created < timezone.now() - KEPT_FOR:
        if earlier is not None:
            earlier.delete()
        return Call(IdempotentAnswer(user=user, call=call, request=sent))
    if earlier.request != sent:
        sentence = Sentence(
            "This Idempotency-Key was used for another request here. Send a new key with a new request."
        )
        raise ProductError("idempotency_key_reused", sentence, status=422)
    if EVENT_STREAM in (request.accepted_renderer.media_type, earlier.headers.get("Content-Type")):
        return Call(earlier)
    if is_lost(earlier.body):
        sentence = Sentence(
            "This was done, but its answer can no longer be read, since the server's key has changed. See whether what "
            "it made is there; to do it once more, send a new Idempotency-Key."
        )
        raise ProductError("answer_lost", sentence, status=409)
    raise Replay(earlier)


def forget_answers() -> None:
    IdempotentAnswer.objects.filter(created__lt=timezone.now() - KEPT_FOR).delete()


def _contents(request: Request, without: Collection[str]) -> Iterator[str | bytes]:
    """What was sent, as it is understood: a repeat may order its members or divide its form in another way."""
    yield request.META.get("QUERY_STRING", "")
    data: Any = request.data
    if not hasattr(data, "lists"):
        told = {name: data[name] for name in data if name not in without} if isinstance(data, dict) else data
        yield json.dumps(told, sort_keys=True)
        return
    for name, values in sorted(data.lists()):
        for value in values:
            yield name
            yield from _file(value) if isinstance(value, UploadedFile) else (str(value),)


def _file(file: "UploadedFile[Any]") -> Iterator[str | bytes]:
    yield file.name or ""
    digest = hashlib.sha256()
    for piece in file.chunks():  # a large one is on the disk, and is not read into memory here either
        digest.update(piece)
    file.seek(0)
    yield digest.digest()


def _hash(parts: "Iterator[str | bytes] | list[str]") -> str:
    """Each part with its length, so that no two lists of parts read the same."""
    digest = hashlib.sha256()
    for part in parts:
        piece = part.encode() if isinstance(part, str) else part
        digest.update(len(piece).to_bytes(8, "big") + piece)
    return digest.hexdigest()


def missing_scope(scope: str) -> Sentence:
    return Sentence("This token lacks the scope “{scope}”. Create one that has it on the settings page.", scope=scope)


class HasScope(BasePermission):
    """A view names its scope. Sessions carry no token and pass."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        scope = view.scope_needed() if isinstance(view, ScopedView) else None
        if scope is not None and isinstance(request.auth, ApiToken) and scope not in request.auth.scopes:
            self.message = str(missing_scope(scope))
            self.code = "missing_scope"
            return False
        return True


class ScopedView(APIView):
    """The base of every API view: signed in, with the scope that the view names, within its rate, and each write
    once per `Idempotency-Key`."""

    permission_classes = (IsAuthenticated, HasScope)
    scope = "chat"
    allowance: Allowance | None = None
    call: Call | None = None
    new_each_time: Collection[str] = ()  # members of the body that name the request itself: a repeat has others

    @property
    def person(self) -> User:
        user = self.request.user
        if not isinstance(user, User):
            raise TypeError("an API view was reached without a user")
        return user

    def scope_needed(self) -> str | None:
        """None lets every token in."""
        return self.scope

    def rate(self) -> str:
        """The kind of call that `settings.API_RATES` limits."""
        return self.scope

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = self._once(request, *args, **kwargs)
        if response.streaming and not connection.in_atomic_block:
            close_old_connections()  # the stream would otherwise hold this connection to its end
        return response

    def _once(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method not in WRITES or KEY_HEADER not in request.headers:
            return super().dispatch(request, *args, **kwargs)
        with transaction.atomic():
            response = super().dispatch(request, *args, **kwargs)
            if self.call is not None:
                self.call.keep(response)
        return response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.query_params:
            refuse_unknown_query(request.query_params, query_names(self, request.method or ""))
        key = key_of(request) if request.method in WRITES else None
        if key is not None:
            self.call = begin(self.person, key, request, self.new_each_time)

    def check_throttles(self, request: Request) -> None:
        kind = self.rate()
        self.allowance = count(self.person, kind)
        require(self.allowance, kind)

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, Replay):
            return exc.response()  # type: ignore[return-value]  # bytes that were rendered before
        return super().handle_exception(exc)

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        final = super().finalize_response(request, response, *args, **kwargs)
        if self.allowance is not None:
            self.allowance.write(final)
        return final


def user_of_request(request: HttpRequest, scope: str) -> User:
    """For views that Django REST framework does not cover: who asks, by a token of that scope or by the session.

    Counts the call, too. Raises `not_authenticated` or `bad_token` (401), `missing_scope` (403), `throttled` (429).
    """
    token = bearer(request)
    try:
        user, row = user_of_token(token) if token else (request.user, None)
    except AuthenticationFailed as error:
        raise ProductError("bad_token", str(error.detail), status=401) from error
    if not isinstance(user, User) or not user.is_active:
        raise ProductError("not_authenticated", "Sign in, or send a token as “Authorization: Bearer …”.", status=401)
    if row is not None and scope not in row.scopes:
        raise ProductError("missing_scope", missing_scope(scope), status=403)
    require(count(user, scope), scope)
    return user
