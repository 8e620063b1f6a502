"""Django's ASGI request handler, changed so that every request ends."""

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

LOG_FIELDS = "log_fields"  # the key in the ASGI scope for the fields of the request's log lines


class Handler(ASGIHandler):
    """Django's ASGI handler, changed so that every view answers and every request ends."""

    # Bytes that the server gets at once. Even the largest page is smaller. So the server gets a whole page, writes it
    # in pieces and knows how many bytes wait. Django also reads files in pieces of this size.
    chunk_size = 16_000_000

    def __init__(self) -> None:
        self._answers: dict[HttpRequest, HttpResponseBase] = {}  # responses of views that are still in middleware
        super().__init__()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Run a request to its end, even if it is cancelled. Django then gets the message that the client has left.

        daphne cancels a request 10 seconds after its client has left. The thread of a view cannot be cancelled, and
        Django returns the thread's database connection only at the end of the request. Without this, each such request
        would take a connection from the process's pool for good.
        """
        cancelled = asyncio.get_running_loop().create_future()

        async def receive_or_disconnect() -> Any:
            message = asyncio.ensure_future(receive())
            try:
                await asyncio.wait({message, cancelled}, return_when=asyncio.FIRST_COMPLETED)
                return message.result() if message.done() else {"type": "http.disconnect"}
            finally:
                message.cancel()

        # Around all middleware, since Django logs the outcome of a request after the middleware.
        with log_context({}, scope.setdefault(LOG_FIELDS, {})):
            request = asyncio.create_task(super().__call__(scope, receive_or_disconnect, send))
        while not request.done():
            try:
                await asyncio.shield(request)
            except asyncio.CancelledError:
                if not cancelled.done():
                    cancelled.set_result(None)
        request.result()

    async def _get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = await super()._get_response_async(request)  # type: ignore[misc]  # the stubs lack it
        self._answers[request] = response
        return response

    async def run_get_response(self, request: HttpRequest) -> HttpResponseBase:
        """Return the response. Closes the view's response if the client leaves while it is in middleware.

        Django closes only responses that have passed all middleware. A stream stops its turn when it is closed, so an
        unclosed stream would leave the turn running. Under load a request spends a long time in middleware.
        """
        try:
            response: HttpResponseBase = await super().run_get_response(request)
        except asyncio.CancelledError:
            if answer := self._answers.get(request):
                # On another thread, since the request's thread may have ended with the cancelled middleware.
                await sync_to_async(answer.close, thread_sensitive=False)()
            raise
        finally:
            self._answers.pop(request, None)
        return response

    def make_view_atomic(self, view: Callable[..., Any]) -> Callable[..., Any]:
        view = super().make_view_atomic(view)
        return view if iscoroutinefunction(view) else _without_stop_iteration(view)


def _without_stop_iteration(view: Callable[..., Any]) -> Callable[..., Any]:
    """Return the view with RuntimeError in place of StopIteration.

    A thread cannot pass StopIteration to the event loop, so the request would wait forever.
    """

    @wraps(view)
    def answer(*args: Any, **kwargs: Any) -> Any:
        try:
            return view(*args, **kwargs)
        except StopIteration as error:
            raise RuntimeError("the view raised StopIteration") from error

    return answer
