"""The ASGI application, which routes requests to Django and WebSockets to their consumer."""

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import WebsocketDenier
from django.urls import re_path

from accounts.access.authentication import SameOrigin, TokenOrSession
from chat.sockets import ConversationConsumer
from config.http.handler import Handler


def create_application() -> ProtocolTypeRouter:
    """Return the application. Collect the static files first: a middleware reads them when it is loaded."""
    sockets = URLRouter(
        [
            re_path(r"^ws/$", ConversationConsumer.as_asgi()),  # type: ignore[list-item,arg-type]  # stubs know views only
            re_path(r"", WebsocketDenier.as_asgi()),  # type: ignore[list-item,arg-type]  # as above
        ]
    )
    return ProtocolTypeRouter(
        {
            "http": Handler(),
            "websocket": TokenOrSession(sockets, SameOrigin(AuthMiddlewareStack(sockets))),
        }
    )
