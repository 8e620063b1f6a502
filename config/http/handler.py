"""Requests on the event loop."""

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from django.core.handlers.asgi import ASGIHandler


class Handler(ASGIHandler):
    """Django's, in which every view answers.

    A view runs in a thread. Of all exceptions, StopIteration cannot be handed from there to the event loop: the request
    would wait for ever.
    """

    def make_view_atomic(self, view: Callable[..., Any]) -> Callable[..., Any]:
        view = super().make_view_atomic(view)
        return view if iscoroutinefunction(view) else _ending(view)


def _ending(view: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(view)
    def answer(*args: Any, **kwargs: Any) -> Any:
        try:
            return view(*args, **kwargs)
        except StopIteration as error:
            raise RuntimeError("the view raised StopIteration") from error

    return answer
