"""`Idempotency-Key` on the API's writes: a program that heard no answer may ask again without doing it twice.

A call is a person's key with a method and a path. Its first answer is kept for a day and given again, marked
`Idempotent-Replayed: true`. The same key with something else in it is refused with `idempotency_key_reused` (422), and
while the first call still runs, with `request_in_progress` (409). What says only "not now" is not kept: 409, 429, 5xx.

What the call does and its answer are committed in one transaction, under an advisory lock of that transaction. So of
two calls at once one runs; a process that dies leaves neither effects, nor an answer, nor a lock that somebody would
have to time out; and no moment exists in which one is stored without the other. Redis could promise none of this.
After a 5xx the effects are rolled back, since a repeat runs anew.

`Turn.idempotency_key` is the same key kept with the turn itself, for pages and sockets, and longer than a day.
"""

import hashlib
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.http import HttpResponse, HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request

from accounts.models import IdempotentAnswer, User
from core.errors import ProductError
from core.locks import try_lock

HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
LONGEST_KEY = 100  # characters
KEPT_FOR = timedelta(hours=24)
KEPT_HEADERS = ("Content-Type", "Location", "ETag")
WRITES = ("POST", "PUT", "PATCH", "DELETE")
PASSING = (409, 429)
SOON = 1  # seconds after which to ask again


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
    key = request.headers.get(HEADER, "")
    if len(key) > LONGEST_KEY:
        raise ProductError(
            "bad_idempotency_key", f"The Idempotency-Key is longer than {LONGEST_KEY} characters; send a UUID."
        )
    return key or None


class Call:
    """A write that runs now, and only here, until the transaction around it ends."""

    def __init__(self, user: User, call: str, request: str) -> None:
        self._row = IdempotentAnswer(user=user, call=call, request=request)

    def keep(self, response: HttpResponseBase) -> None:
        """Stores the answer; rolls back what led to a 5xx. A stream is nothing that could be given again."""
        if response.status_code >= 500:
            transaction.set_rollback(True)
        if response.status_code >= 500 or response.status_code in PASSING or not isinstance(response, HttpResponse):
            return
        render = getattr(response, "render", None)
        if render is not None:
            render()
        self._row.status = response.status_code
        self._row.headers = {name: response[name] for name in KEPT_HEADERS if name in response}
        self._row.body = response.content.decode()
        self._row.save()


def begin(user: User, key: str, request: Request) -> Call:
    """Call it in a transaction. Raises `Replay`, `request_in_progress` or `idempotency_key_reused`: it must not run."""
    call = _hash([key, str(request.method), request.path])
    if not try_lock(f"{user.pk}:{call}"):
        sentence = "The first request with this Idempotency-Key is still running. Ask again in a moment."
        raise ProductError("request_in_progress", sentence, status=409, retry_after=SOON)
    sent = _hash(_contents(request))
    earlier = IdempotentAnswer.objects.filter(user=user, call=call).first()
    if earlier is None or earlier.created < timezone.now() - KEPT_FOR:
        if earlier is not None:
            earlier.delete()
        return Call(user, call, sent)
    if earlier.request != sent:
        sentence = "This Idempotency-Key was used for another request here. Send a new key with a new request."
        raise ProductError("idempotency_key_reused", sentence, status=422)
    raise Replay(earlier)


def forget_old() -> None:
    IdempotentAnswer.objects.filter(created__lt=timezone.now() - KEPT_FOR).delete()


def _contents(request: Request) -> Iterator[str | bytes]:
    """What was sent, as it is understood: a repeat may order its members or divide its form in another way."""
    yield request.META.get("QUERY_STRING", "")
    data: Any = request.data
    if not hasattr(data, "lists"):
        yield json.dumps(data, sort_keys=True)
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
