from typing import Any

from django.urls import re_path

from chat.consumers import ConversationConsumer

websocket_urlpatterns: list[Any] = [re_path(r"^ws/$", ConversationConsumer.as_asgi())]  # type: ignore[arg-type]  # stubs know views only
