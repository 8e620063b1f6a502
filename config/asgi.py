"""HTTP and WebSockets, in one ASGI application."""

import os

import django
from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import WebsocketDenier
from django.urls import re_path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()  # before the routes: they import models

from accounts.access.authentication import SameOrigin, TokenOrSession  # noqa: E402 - see above
from chat.sockets import ConversationConsumer  # noqa: E402 - see above
from config.http.handler import Handler  # noqa: E402 - see above
from config.static_files import collect_changed  # noqa: E402 - see above

collect_changed()  # before the middleware looks which files there are
http = Handler()
sockets = URLRouter(
    [
        re_path(r"^ws/$", ConversationConsumer.as_asgi()),  # type: ignore[list-item,arg-type]  # stubs know views only
        re_path(r"", WebsocketDenier.as_asgi()),  # type: ignore[list-item,arg-type]  # as above
    ]
)
application = ProtocolTypeRouter(
    {
        "http": http,
        "websocket": TokenOrSession(sockets, SameOrigin(AuthMiddlewareStack(sockets))),
    }
)
