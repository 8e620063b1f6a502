"""HTTP and WebSockets, in one ASGI application."""

import os

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
http = get_asgi_application()  # before the routes: they import models

from accounts.socket_tokens import TokenOrSession  # noqa: E402 - see above
from config.limits import BodyLimit  # noqa: E402 - see above
from config.routing import websocket_urlpatterns  # noqa: E402 - see above

sockets = URLRouter(websocket_urlpatterns)
application = ProtocolTypeRouter(
    {
        "http": BodyLimit(http),
        "websocket": TokenOrSession(sockets, AllowedHostsOriginValidator(AuthMiddlewareStack(sockets))),
    }
)
