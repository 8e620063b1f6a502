"""Requests on the event loop."""

import asyncio
from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from core.logs.context import log_context


class Handler(ASGIHandler):
    """Django's, in which every view answers and every request comes to its end."""

    # Bytes that are handed to the server at once. The largest pages are smaller: the server has all of a page, writes
    # it in pieces and knows how much waits. Django reads files in pieces of this size, too.
    chunk_size = 16_000_000

    def __init__(self) -> None:
        self._answers: dict[HttpRequest, HttpResponseBase] = {}  # of views, while middleware has them
        super().__init__()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Also when it is cancelled: Django takes that as if the client were gone.

        daphne cancels what goes on 10 seconds after its client went. The thread of a view cannot be cancelled, and only
        at the end of the request does Django give back the thread's database connection: left alone, each such request
        would take one from the process's pool for good.
        """
        given_up = asyncio.get_running_loop().create_future()

        async def heard() -> Any:
            message = asyncio.ensure_future(receive())
            try:
                await asyncio.wait({message, given_up}, return_when=asyncio.FIRST_COMPLETED)
                return message.result() if message.done() else {"type": "http.disconnect"}
            finally:
                message.cancel()

        # Here, around all middleware: Django logs what has become of a request when that is through.
        with log_context({}, scope.setdefault("said", {})):
            request = asyncio.create_task(super().__call__(scope, heard, send))
        while not request.done():
            try:
                await asyncio.shield(request)
            except asyncio.CancelledError:
                if not given_up.done():
                    given_up.set_result(None)
        request.result()

    async def _get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = await super()._get_response_async(request)  # type: ignore[misc]  # the stubs lack it
        self._answers[request] = response
        return response

    async def run_get_response(self, request: HttpRequest) -> HttpResponseBase:
        """Also close what the view has answered when the client goes while middleware has it.

        Django closes only what came out of all middleware. A stream that stops its turn when it is closed would leave
        the turn running, and under load a request is in middleware for long.
        """
        try:
            response: HttpResponseBase = await super().run_get_response(request)
        except asyncio.CancelledError:
            if answer := self._answers.get(request):
                # In a thread of its own: that of the request may have ended with the middleware that was cancelled.
                await sync_to_async(answer.close, thread_sensitive=False)()
            raise
        finally:
            self._answers.pop(request, None)
        return response

    def make_view_atomic(self, view: Callable[..., Any]) -> Callable[..., Any]:
        view = super().make_view_atomic(view)
        return view if iscoroutinefunction(view) else _ending(view)


def _ending(view: Callable[..., Any]) -> Callable[..., Any]:
    """Of all exceptions, StopIteration cannot be handed from a view's thread to the event loop: the request would wait
    for ever."""

    @wraps(view)
    def answer(*args: Any, **kwargs: Any) -> Any:
        try:
            return view(*args, **kwargs)
        except StopIteration as error:
            raise RuntimeError("the view raised StopIteration") from error

    return answer
