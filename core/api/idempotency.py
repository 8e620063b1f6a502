"""Answer repeated writes with an `Idempotency-Key`.

A program that got no answer may send a write again, and the write runs only once. A call is identified by the user,
the key, the method and the path.

1. `begin_call` takes an advisory lock for the call. A second call at the same time gets `request_in_progress` (409).
2. A stored answer is replayed for a day, marked `Idempotent-Replayed: true`. The same key with other contents is
   refused with `idempotency_key_reused` (422).
3. Otherwise the call runs, and `IdempotentCall.store` stores its answer. Temporary failures (409, 429, 5xx) are not
   stored. Secrets that are shown once are not stored either: a repeat returns the created token or webhook with null
   instead of the secret, and says so.

The effects of the call and its answer are committed in one transaction, which holds the lock. So only one of two
simultaneous calls runs. A process that dies leaves no effects, no answer and no lock that has to time out. Effects and
answer are never stored without each other. Redis cannot guarantee any of this. After a 5xx the effects are rolled back,
since a repeat runs again.

`Turn.idempotency_key` stores the same key with the turn, for pages and sockets, and for longer than a day.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import AbstractUser
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.http import HttpResponse, HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from core.api.idempotent_answer import IdempotentAnswer
from core.api.streams import EVENT_STREAM
from core.crypto import is_lost
from core.errors import ProductError
from core.locks import try_lock
from core.sentences import Sentence

KEY_HEADER = "Idempotency-Key"
REPLAYED_HEADER = "Idempotent-Replayed"
MAX_KEY_LENGTH = 100  # characters
ANSWER_LIFETIME = timedelta(hours=24)
STORED_HEADERS = ("Content-Type", "Location", "ETag")
WRITES = ("POST", "PUT", "PATCH", "DELETE")
TEMPORARY_STATUSES = (409, 429)
RETRY_AFTER = 1  # seconds to wait before asking again


class ReplayedAnswer(Exception):
    """Ends a call before it runs, with its stored answer."""

    def __init__(self, answer: IdempotentAnswer) -> None:
        super().__init__(answer.call)
        self.answer = answer

    def response(self) -> HttpResponse:
        response = HttpResponse(self.answer.body, status=self.answer.status)
        del response["Content-Type"]  # Django gives even a 204 one
        for name, value in {**self.answer.headers, REPLAYED_HEADER: "true"}.items():
            response[name] = value
        return response


def read_key(request: Request) -> str | None:
    """Return the key of the request; None without one. Raises `bad_idempotency_key`."""
    key = request.headers.get(KEY_HEADER, "")
    if len(key) > MAX_KEY_LENGTH:
        raise ProductError(
            "bad_idempotency_key",
            Sentence(
                "The Idempotency-Key is longer than {longest_key} characters; send a UUID.", longest_key=MAX_KEY_LENGTH
            ),
        )
    return key or None


class ShownOnce(Response):
    """The answer to the creation of a secret. In a repeat the member named `once` is null, and `left_out` says why."""

    def __init__(self, data: Mapping[str, Any], once: str, *, what: str) -> None:
        super().__init__({**data, "left_out": ""}, status=201, headers={"Cache-Control": "no-store"})
        self.once = once
        self.left_out = Sentence(
            "This request was answered before. “{once}” was shown only in the first answer. "
            "If you no longer have it, delete this {what} and create another with a new Idempotency-Key.",
            once=once,
            what=what,
        )


class IdempotentCall:
    """A write that only this process runs until the surrounding transaction ends."""

    def __init__(self, row: IdempotentAnswer) -> None:
        self._row = row

    def store(self, response: HttpResponseBase) -> None:
        """Store the answer. A stream cannot be replayed, so only its status and headers are stored. Rolls a 5xx back.

        Temporary failures (`TEMPORARY_STATUSES`) are not stored.
        """
        if response.status_code >= 500:
            transaction.set_rollback(True)
        if response.status_code >= 500 or response.status_code in TEMPORARY_STATUSES:
            return
        render = getattr(response, "render", None)
        if render is not None:
            render()
        self._row.status = response.status_code
        self._row.headers = {name: response[name] for name in STORED_HEADERS if name in response}
        self._row.body = response.content.decode() if isinstance(response, HttpResponse) else ""
        if isinstance(response, ShownOnce):
            without_secret = {response.once: None, "left_out": str(response.left_out)}
            self._row.body = json.dumps({**json.loads(self._row.body), **without_secret})
        self._row.save()


def begin_call(user: AbstractUser, key: str, request: Request, new_each_time: Collection[str] = ()) -> IdempotentCall:
    """Begin a call. Call this in a transaction. A repeat may differ in the members `new_each_time`.

    Raises `ReplayedAnswer`, `request_in_progress`, `idempotency_key_reused` or `answer_lost` if it must not run. A
    repeat that streams events does run: its key finds the turn that the first call began, and it streams that turn.
    """
    call = _hash([key, str(request.method), request.path])
    if not try_lock(f"{user.pk}:{call}"):
        sentence = Sentence("The first request with this Idempotency-Key is still running. Ask again in a moment.")
        raise ProductError("request_in_progress", sentence, status=409, retry_after=RETRY_AFTER)
    request_hash = _hash(_contents(request, new_each_time))
    earlier = IdempotentAnswer.objects.filter(user=user.pk, call=call).first()
    if earlier is None or earlier.created < timezone.now() - ANSWER_LIFETIME:
        if earlier is not None:
            earlier.delete()
        return IdempotentCall(IdempotentAnswer(user_id=user.pk, call=call, request=request_hash))
    if earlier.request != request_hash:
        sentence = Sentence(
            "This Idempotency-Key was used for another request here. Send a new key with a new request."
        )
        raise ProductError("idempotency_key_reused", sentence, status=422)
    if EVENT_STREAM in (request.accepted_renderer.media_type, earlier.headers.get("Content-Type")):
        return IdempotentCall(earlier)
    if is_lost(earlier.body):
        sentence = Sentence(
            "This request was carried out, but its stored answer can no longer be read, since the server's key has "
            "changed. Check the result. To repeat the request, send a new Idempotency-Key."
        )
        raise ProductError("answer_lost", sentence, status=409)
    raise ReplayedAnswer(earlier)


def delete_old_answers() -> None:
    IdempotentAnswer.objects.filter(created__lt=timezone.now() - ANSWER_LIFETIME).delete()


def _contents(request: Request, without: Collection[str]) -> Iterator[str | bytes]:
    """Yield the parsed contents of the request, since a repeat may have its members or form parts in another order."""
    yield request.META.get("QUERY_STRING", "")
    data: Any = request.data
    if not hasattr(data, "lists"):
        compared = {name: data[name] for name in data if name not in without} if isinstance(data, dict) else data
        yield json.dumps(compared, sort_keys=True)
        return
    for name, values in sorted(data.lists()):
        for value in values:
            yield name
            yield from _file_contents(value) if isinstance(value, UploadedFile) else (str(value),)


def _file_contents(file: "UploadedFile[Any]") -> Iterator[str | bytes]:
    yield file.name or ""
    digest = hashlib.sha256()
    for piece in file.chunks():  # a large file is on disk and should not be read into memory
        digest.update(piece)
    file.seek(0)
    yield digest.digest()


def _hash(parts: "Iterator[str | bytes] | list[str]") -> str:
    """Return the hash of the parts, each with its length, so that no two lists of parts have the same hash."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
