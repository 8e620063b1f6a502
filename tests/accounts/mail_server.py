"""A mail server of the tests' own, over real SMTP."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller
from django.test.utils import override_settings

from config import service_urls
from tests.product import free_port


@dataclass
class MailServer:
    """`refuses`: recipients that it takes nothing for."""

    url: str
    received: list[EmailMessage] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address in self.refuses:
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.received.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 taken"

    def text(self, number: int = -1) -> str:
        return str(self.received[number].get_content())


@contextmanager
def mailing() -> Iterator[MailServer]:
    """The product mails through it meanwhile."""
    port = free_port()
    server = MailServer(f"smtp://127.0.0.1:{port}")
    controller = Controller(server, hostname="127.0.0.1", port=port)
    controller.start()
    options = service_urls.mail(server.url)
    backend = "django.core.mail.backends.smtp.EmailBackend"
    try:
        with override_settings(
            EMAIL_URL=server.url, EMAIL_HOST=options["HOST"], EMAIL_PORT=options["PORT"], EMAIL_BACKEND=backend
        ):
            yield server
    finally:
        controller.stop()
